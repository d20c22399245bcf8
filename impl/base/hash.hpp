// The FNV-1a hash, for names and for comparing texts. It is no protection against forgery; access is decided
// by credentials that the kernel reports.
#pragma once

#include <cstdint>
#include <string_view>

namespace dsc {

inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325u;

constexpr uint64_t fnv1a(std::string_view text, uint64_t start = kFnvStart) noexcept {
  uint64_t hash = start;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace dsc
