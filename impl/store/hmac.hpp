// HMAC-SHA256 (RFC 2104) from libsodium, and HKDF (RFC 5869) on top of it.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace dsc {

using Digest = std::array<uint8_t, 32>;

inline std::string_view bytes_of(const Digest& digest) noexcept {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// Computes the HMAC of all parts together, as if they were concatenated.
Digest hmac_sha256(std::string_view key, std::initializer_list<std::string_view> parts) noexcept;

// Compares two texts in a time that does not depend on where they differ. Returns false if their lengths
// differ.
bool equal_bytes(std::string_view a, std::string_view b) noexcept;

Digest hkdf_extract(std::string_view salt, std::string_view secret) noexcept;
// Returns the first 32 bytes of the output.
Digest hkdf_expand(const Digest& key, std::string_view purpose) noexcept;

// Overwrites a secret in a way that the compiler does not optimize away.
void forget(Digest& secret) noexcept;

}  // namespace dsc
