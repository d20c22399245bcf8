// Text in arrays of fixed size, as records in shared memory and messages hold it.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

namespace dsc {

// Returns the text up to its zero, or the whole array if it has none, as another process may have written it.
template <size_t N>
std::string bounded_text(const char (&source)[N]) {
  return std::string(source, ::strnlen(source, N));
}

template <size_t N>
std::string bounded_text(const std::array<char, N>& source) {
  return std::string(source.data(), ::strnlen(source.data(), N));
}

}  // namespace dsc
