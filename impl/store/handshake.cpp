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

std::string encode(const Greeting& greeting) {
  ByteWriter writer;
  writer.number(greeting.magic);
  writer.number(greeting.version);
  writer.number(greeting.flags);
  writer.raw(bytes_of(greeting.incarnation));
  writer.raw(bytes_of(greeting.nonce));
  return writer.take();
}

std::string encode(const Introduction& introduction) {
  ByteWriter writer;
  writer.number(introduction.magic);
  writer.number(introduction.version);
  writer.number(introduction.flags);
  writer.raw(bytes_of(introduction.nonce));
  writer.raw(bytes_of(introduction.job));
  return writer.take();
}

std::optional<Greeting> decode_greeting(std::string_view bytes) {
  ByteReader reader(bytes);
  Greeting greeting;
  greeting.magic = reader.number<uint64_t>();
  greeting.version = reader.number<uint32_t>();
  if (!reader.good() || greeting.magic != kStoreMagic) return std::nullopt;
  if (greeting.version != kStoreVersion) return greeting;
  greeting.flags = reader.number<uint32_t>();
  read_into(greeting.incarnation, reader);
  read_into(greeting.nonce, reader);
  if (!reader.at_end()) return std::nullopt;
  return greeting;
}

std::optional<Introduction> decode_introduction(std::string_view bytes) {
  ByteReader reader(bytes);
  Introduction introduction;
  introduction.magic = reader.number<uint64_t>();
  introduction.version = reader.number<uint32_t>();
  if (!reader.good() || introduction.magic != kStoreMagic) return std::nullopt;
  if (introduction.version != kStoreVersion) return introduction;
  introduction.flags = reader.number<uint32_t>();
  read_into(introduction.nonce, reader);
  read_into(introduction.job, reader);
  if (!reader.at_end()) return std::nullopt;
  return introduction;
}

Nonce job_fingerprint(std::string_view job_id) noexcept {
  const Digest digest = hmac_sha256("libdsc job", {job_id});
  Nonce fingerprint;
  std::copy_n(digest.begin(), fingerprint.size(), fingerprint.begin());
  return fingerprint;
}

SessionKeys::SessionKeys(const Token& token, std::string_view greeting,
                         std::string_view introduction) noexcept {
  static constexpr Digest kNoToken{};
  const Digest salt = hmac_sha256("libdsc store 1", {greeting, introduction});
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
