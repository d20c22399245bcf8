// The FNV-1a hash, for names and for comparing texts. It does not protect against forgery. Where that
// matters, access is checked with the credentials that the kernel reports.
#pragma once

#include <cstdint>
#include <string_view>

namespace dsc {

inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325u;

constexpr uint64_t fnv1a(uint8_t byte, uint64_t start) noexcept { return (start ^ byte) * 0x100000001b3u; }

constexpr uint64_t fnv1a(std::string_view text, uint64_t start = kFnvStart) noexcept {
  uint64_t hash = start;
  for (const char c : text) hash = fnv1a(static_cast<uint8_t>(c), hash);
  return hash;
}

}  // namespace dsc
