// The handshake by which the client and the server of a TCP store prove to each other that they hold the same
// token without revealing it: three messages of fixed size with fresh random numbers from both sides, which
// also give the keys for subsequent frames. No side effects.
//
//   server: hello              client: hello + proof              server: result + proof
//
// The keys are HKDF-SHA256 of the token, salted with all preceding messages. Without a token they protect
// against accidents but not against attackers.
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
inline constexpr uint32_t kNeedsToken = 1;  // a bit of `flags`

// The server's first message.
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
  Nonce job{};  // result of job_fingerprint()
};
inline constexpr size_t kClientHelloBytes = 48;
inline constexpr size_t kProofBytes = sizeof(Digest);
inline constexpr size_t kResultBytes = 4;

std::string encode(const ServerHello& server_hello);
std::string encode(const ClientHello& client_hello);
// Return nullopt if the bytes do not start with the magic number. If they are of another version, only magic
// and version are decoded.
std::optional<ServerHello> decode_server_hello(std::string_view bytes);
std::optional<ClientHello> decode_client_hello(std::string_view bytes);

// Maps a job id of any length to 16 bytes.
Nonce job_fingerprint(std::string_view job_id) noexcept;

// The values that both sides derive from the token and the first two messages.
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
