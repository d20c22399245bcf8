// Reads texts of any length from the library.
#pragma once

#include <stdexcept>
#include <string>

#include "dsc/error.h"

namespace dscctl {

// Returns the text that give(text, capacity, &bytes) writes.
template <typename Give>
std::string library_text(const Give& give) {
  std::string text;
  for (size_t bytes = 1 << 14; bytes > text.size();) {
    text.resize(bytes);
    if (give(text.data(), text.size(), &bytes) != DSC_OK) throw std::runtime_error(dsc_last_error_message());
    if (bytes <= text.size()) {
      text.resize(bytes - 1);  // without the terminating zero
      return text;
    }
  }
  return text;
}

}  // namespace dscctl
