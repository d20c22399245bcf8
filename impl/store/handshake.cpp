#include "store/handshake.hpp"

#include <algorithm>
#include <cstring>

#include "store/bytes.hpp"

namespace dsc {
namespace {

std::string_view bytes_of(const Nonce& nonce) {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}

void read_into(Nonce& nonce, ByteReader& reader) {
  std::ranges::copy(reader.raw(nonce.size()), nonce.begin());
}

}  // namespace

std::string encode(const ServerHello& server_hello) {
  ByteWriter writer;
  writer.number(server_hello.magic);
  writer.number(server_hello.version);
  writer.number(server_hello.flags);
  writer.raw(bytes_of(server_hello.incarnation));
  writer.raw(bytes_of(server_hello.nonce));
  return writer.take();
}

std::string encode(const ClientHello& client_hello) {
  ByteWriter writer;
  writer.number(client_hello.magic);
  writer.number(client_hello.version);
  writer.number(client_hello.flags);
  writer.raw(bytes_of(client_hello.nonce));
  writer.raw(bytes_of(client_hello.job));
  return writer.take();
}

std::optional<ServerHello> decode_server_hello(std::string_view bytes) {
  ByteReader reader(bytes);
  ServerHello server_hello;
  server_hello.magic = reader.number<uint64_t>();
  server_hello.version = reader.number<uint32_t>();
  if (!reader.good() || server_hello.magic != kStoreMagic) return std::nullopt;
  if (server_hello.version != kStoreVersion) return server_hello;
  server_hello.flags = reader.number<uint32_t>();
  read_into(server_hello.incarnation, reader);
  read_into(server_hello.nonce, reader);
  if (!reader.at_end()) return std::nullopt;
  return server_hello;
}

std::optional<ClientHello> decode_client_hello(std::string_view bytes) {
  ByteReader reader(bytes);
  ClientHello client_hello;
  client_hello.magic = reader.number<uint64_t>();
  client_hello.version = reader.number<uint32_t>();
  if (!reader.good() || client_hello.magic != kStoreMagic) return std::nullopt;
  if (client_hello.version != kStoreVersion) return client_hello;
  client_hello.flags = reader.number<uint32_t>();
  read_into(client_hello.nonce, reader);
  read_into(client_hello.job, reader);
  if (!reader.at_end()) return std::nullopt;
  return client_hello;
}

Nonce job_fingerprint(std::string_view job_id) noexcept {
  const Digest digest = hmac_sha256("libdsc job", {job_id});
  Nonce fingerprint;
  std::copy_n(digest.begin(), fingerprint.size(), fingerprint.begin());
  return fingerprint;
}

SessionKeys::SessionKeys(const Token& token, std::string_view server_hello,
                         std::string_view client_hello) noexcept {
  static constexpr Digest kNoToken{};
  const Digest salt = hmac_sha256("libdsc store 1", {server_hello, client_hello});
  Digest key = hkdf_extract(bytes_of(salt), bytes_of(token ? *token : kNoToken));
  client_ = hkdf_expand(key, "client proof");
  server_ = hkdf_expand(key, "server proof");
  to_server_ = hkdf_expand(key, "frames to server");
  to_client_ = hkdf_expand(key, "frames to client");
  forget(key);
}

SessionKeys::~SessionKeys() {
  for (Digest* key : {&client_, &server_, &to_server_, &to_client_}) forget(*key);
}

Digest SessionKeys::client_proof() const noexcept { return hmac_sha256(bytes_of(client_), {"client"}); }

Digest SessionKeys::server_proof(std::string_view result) const noexcept {
  return hmac_sha256(bytes_of(server_), {"server", result});
}

}  // namespace dsc
