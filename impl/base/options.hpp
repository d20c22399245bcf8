// Structs that begin with their own size, so that programs compiled with another release still work.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/error.hpp"

namespace dsc {

constexpr size_t kMaxStructBytes = 65536;

// Size of a struct in the first release that had it. If a struct grows in a later release, a specialization
// keeps the first size, so that programs of older releases still work.
template <typename T>
inline constexpr size_t kFirstSize = sizeof(T);

// Returns the separator between `what` and a member in messages: "->" as in "options->stage", but "." as in
// "params[0].device".
inline const char* member_of(std::string_view what) noexcept { return what.ends_with(']') ? "." : "->"; }

// Returns the size that the caller set in a struct, after checking it. An unset size must not make the
// library read beyond the caller's memory.
template <typename T>
size_t struct_size_of(const T* given, const char* what) {
  if (!given) fail(DSC_ERR_INVALID_ARG, "%s is NULL", what);
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < kFirstSize<T> || size > kMaxStructBytes)
    fail(DSC_ERR_INVALID_ARG, "%s%sstruct_size is %zu, expected %zu to %zu: was it initialised?", what,
         member_of(what), size, kFirstSize<T>, kMaxStructBytes);
  return size;
}

// Reads a caller's struct. If it is smaller than the library's struct, the missing members keep their
// defaults. If it is larger, the bytes that this release does not know must be zero.
template <typename T>
T read_sized(const T* given, T defaults, const char* what) {
  if (!given) return defaults;
  const size_t size = struct_size_of(given, what);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0)
      fail(DSC_ERR_UNSUPPORTED, "%s has a setting at byte %zu that this version does not know", what, i);
  std::memcpy(&defaults, given, std::min(size, sizeof(T)));
  defaults.struct_size = sizeof(T);
  if constexpr (requires { defaults.reserved; })
    if (defaults.reserved != 0)
      fail(DSC_ERR_INVALID_ARG, "%s%sreserved is %d, expected 0", what, member_of(what), defaults.reserved);
  return defaults;
}

// Writes defaults into a caller's struct of `size` bytes. Bytes that this release does not know become zero.
template <typename T>
void init_sized(T* given, size_t size, T defaults, const char* what) {
  if (!given) fail(DSC_ERR_INVALID_ARG, "%s is NULL", what);
  if (size < kFirstSize<T>)
    fail(DSC_ERR_INVALID_ARG, "struct_size is %zu, expected at least %zu", size, kFirstSize<T>);
  std::memset(static_cast<void*>(given), 0, size);
  defaults.struct_size = size;
  std::memcpy(static_cast<void*>(given), &defaults, std::min(size, sizeof(T)));
}

// Writes a result into a caller's struct. Bytes that this release does not know become zero.
template <typename T>
void write_sized(T* given, T value, const char* what) {
  value.struct_size = struct_size_of(given, what);
  std::memcpy(static_cast<void*>(given), &value, std::min(value.struct_size, sizeof(T)));
  if (value.struct_size > sizeof(T))
    std::memset(reinterpret_cast<char*>(given) + sizeof(T), 0, value.struct_size - sizeof(T));
}

}  // namespace dsc
