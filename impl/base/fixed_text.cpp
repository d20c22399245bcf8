#include "base/fixed_text.hpp"

#include <algorithm>
#include <cstdio>

#include "base/utf8.hpp"

namespace dsc {

void append_text(char* to, size_t capacity, std::string_view text) noexcept {
  const size_t used = ::strnlen(to, capacity - 1);
  const size_t room = capacity - 1 - used;
  const size_t bytes = text.size() <= room ? text.size() : utf8_whole(text.substr(0, room));
  std::copy_n(text.begin(), bytes, to + used);
  to[used + bytes] = '\0';
}

void append_format(char* to, size_t capacity, const char* format, va_list args) noexcept {
  const size_t used = ::strnlen(to, capacity - 1);
  const int bytes = std::vsnprintf(to + used, capacity - used, format, args);
  if (bytes < 0) to[used] = '\0';
  if (bytes >= 0 && static_cast<size_t>(bytes) >= capacity - used) to[utf8_whole(to)] = '\0';
}

}  // namespace dsc
