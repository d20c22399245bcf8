// The handshake of a TCP store, with which client and server prove to each other that they have the same
// token, without revealing it. It has three messages of fixed size, with new random numbers from both sides.
// The messages also determine the keys for the frames that follow. The functions have no side effects.
//
//   server: hello              client: hello + proof              server: result + proof
//
// The keys are HKDF-SHA256 of the token, salted with all preceding messages. Without a token they protect
// against accidents, but not against attackers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/random.hpp"
#include "dsc/types.h"
#include "store/hmac.hpp"
#include "store/token.hpp"

namespace dsc {

inline constexpr uint64_t kStoreMagic = 0x726f74732d637364u;  // "dsc-stor" in memory
inline constexpr uint32_t kStoreVersion = 1;
inline constexpr uint32_t kNeedsToken = 1;  // bit of `flags`

// The first message of the server.
struct ServerHello {
  uint64_t magic = kStoreMagic;
  uint32_t version = kStoreVersion;
  uint32_t flags = 0;
  Nonce incarnation{};  // identifies the server process
  Nonce nonce{};
};
inline constexpr size_t kServerHelloBytes = 48;

// The client's reply.
struct ClientHello {
  uint64_t magic = kStoreMagic;
  uint32_t version = kStoreVersion;
  uint32_t flags = 0;
  Nonce nonce{};
  Nonce job{};  // result of job_fingerprint() for the client's job id
};
inline constexpr size_t kClientHelloBytes = 48;
inline constexpr size_t kProofBytes = sizeof(Digest);
inline constexpr size_t kResultBytes = 4;

std::string encode(const ServerHello& server_hello);
std::string encode(const ClientHello& client_hello);
// These return nullopt if the bytes do not begin with the magic number. If the message is of another version,
// they decode only magic and version.
std::optional<ServerHello> decode_server_hello(std::string_view bytes);
std::optional<ClientHello> decode_client_hello(std::string_view bytes);

// Returns a hash of 16 bytes for a job id of any length.
Nonce job_fingerprint(std::string_view job_id) noexcept;

// The values that client and server derive from the token and the first two messages.
class SessionKeys {
 public:
  SessionKeys(const Token& token, std::string_view server_hello, std::string_view client_hello) noexcept;
  ~SessionKeys();

  Digest client_proof() const noexcept;
  Digest server_proof(std::string_view result) const noexcept;

  const Digest& to_server() const noexcept { return to_server_; }
  const Digest& to_client() const noexcept { return to_client_; }

 private:
  Digest client_;
  Digest server_;
  Digest to_server_;
  Digest to_client_;
};

}  // namespace dsc
