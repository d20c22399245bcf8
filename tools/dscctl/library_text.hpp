// Texts of the library, of whatever length.
#pragma once

#include <stdexcept>
#include <string>

#include "dsc/error.h"

namespace dscctl {

// What give(text, capacity, &bytes) gives.
template <typename Give>
std::string library_text(const Give& give) {
  std::string text;
  for (size_t bytes = 1 << 14; bytes > text.size();) {
    text.resize(bytes);
    if (give(text.data(), text.size(), &bytes) != DSC_OK) throw std::runtime_error(dsc_last_error_message());
    if (bytes <= text.size()) {
      text.resize(bytes - 1);  // without the zero at its end
      return text;
    }
  }
  return text;
}

}  // namespace dscctl
