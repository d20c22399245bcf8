// Returns texts and lists to the caller. Writes as much as fits into the caller's memory, and sets the
// complete size (see dsc/types.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "base/options.hpp"
#include "base/utf8.hpp"
#include "checks.hpp"

namespace dsc {

// If the capacity is 0, the caller wants only the size, so nothing counts as truncated.
inline dsc_result_t how_given(size_t size, size_t capacity) noexcept {
  return capacity == 0 || size <= capacity ? DSC_OK : DSC_TRUNCATED;
}

// Throws INVALID_ARG for a wrong argument. It is called before anything is written.
template <typename T>
void check_room(const T* list, const char* name, size_t capacity, const size_t* size) {
  if (capacity > 0) require(list, name);
  require(size, "the address for the needed size");
}

inline dsc_result_t give_text(const std::string& source, char* text, size_t capacity, size_t* bytes) {
  check_room(text, "text", capacity, bytes);
  *bytes = source.size() + 1;
  if (capacity > 0) {
    size_t copied = std::min(source.size(), capacity - 1);
    if (copied < source.size()) copied = utf8_whole({source.data(), copied});
    std::memcpy(text, source.data(), copied);
    text[copied] = 0;
  }
  return how_given(source.size() + 1, capacity);
}

// Writes a list of `size` entries; `entry(i)` returns entry i.
template <typename T, typename Entry>
dsc_result_t give_list(const char* name, size_t size, T* list, size_t capacity, size_t* count, Entry entry) {
  check_room(list, name, capacity, count);
  *count = size;
  for (size_t i = 0; i < std::min(size, capacity); ++i) list[i] = static_cast<T>(entry(i));
  return how_given(size, capacity);
}

template <typename From, typename T>
dsc_result_t give_list(const char* name, const std::vector<From>& source, T* list, size_t capacity,
                       size_t* count) {
  return give_list(name, source.size(), list, capacity, count, [&](size_t i) { return source[i]; });
}

// Like give_list(), for structs. The first entry of the caller's list says how large the caller's structs
// are, because the caller may have been compiled with another release.
template <typename From, typename T, typename Convert>
dsc_result_t give_structs(const char* name, const std::vector<From>& source, T* list, size_t capacity,
                          size_t* count, Convert convert) {
  check_room(list, name, capacity, count);
  const size_t stride = capacity > 0 ? struct_size_of(list, (std::string(name) + "[0]").c_str()) : 0;
  auto* at = reinterpret_cast<std::byte*>(list);
  for (size_t i = 0; i < std::min(source.size(), capacity); ++i, at += stride) {
    std::memcpy(at, &stride, sizeof stride);
    write_sized(reinterpret_cast<T*>(at), convert(source[i]), name);
  }
  *count = source.size();
  return how_given(source.size(), capacity);
}

}  // namespace dsc
