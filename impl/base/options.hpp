// Structs that carry their own size, so that callers compiled against another release keep working.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/error.hpp"

namespace dsc {

constexpr size_t kMaxStructBytes = 65536;

// Rejects a size that cannot be right, so that an uninitialised struct does not make the library read beyond
// the caller's memory.
inline void check_struct_size(size_t size, size_t first_size, const char* what) {
  if (size < first_size || size > kMaxStructBytes)
    fail(DSC_ERR_INVALID_ARG, "%s->struct_size is %zu, expected %zu to %zu: was it initialised?", what, size,
         first_size, kMaxStructBytes);
}

// Reads a caller's struct. If it is smaller than the library's, the remaining members keep their defaults; if
// it is larger, the unknown part must be zero. `first_size` is the size of the struct in the first release.
template <typename T>
T read_sized(const T* given, T defaults, size_t first_size, const char* what) {
  if (!given) return defaults;
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  check_struct_size(size, first_size, what);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0)
      fail(DSC_ERR_UNSUPPORTED, "%s has a setting at byte %zu that this version does not know", what, i);
  std::memcpy(&defaults, given, std::min(size, sizeof(T)));
  defaults.struct_size = sizeof(T);
  return defaults;
}

// Writes defaults into a caller's struct of `size` bytes; a part that the library does not know becomes zero.
template <typename T>
void init_sized(T* given, size_t size, T defaults, size_t first_size, const char* what) {
  if (!given) fail(DSC_ERR_INVALID_ARG, "%s is NULL", what);
  if (size < first_size)
    fail(DSC_ERR_INVALID_ARG, "struct_size is %zu, expected at least %zu", size, first_size);
  std::memset(static_cast<void*>(given), 0, size);
  defaults.struct_size = size;
  std::memcpy(static_cast<void*>(given), &defaults, std::min(size, sizeof(T)));
}

// Writes a result into a caller's struct, up to the size that the struct carries.
template <typename T>
void write_sized(T* given, T value, size_t first_size, const char* what) {
  if (!given) fail(DSC_ERR_INVALID_ARG, "%s is NULL", what);
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < first_size)
    fail(DSC_ERR_INVALID_ARG, "%s->struct_size is %zu, expected at least %zu", what, size, first_size);
  value.struct_size = size;
  std::memcpy(static_cast<void*>(given), &value, std::min(size, sizeof(T)));
}

}  // namespace dsc
