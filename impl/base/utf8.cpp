#include "base/utf8.hpp"

namespace dsc {
namespace {

bool is_continuation(unsigned char byte) noexcept { return (byte & 0xc0) == 0x80; }

}  // namespace

size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < length; ++i)
    if (!is_continuation(static_cast<unsigned char>(byte(i)))) return 0;
  const unsigned second = byte(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  // Surrogates and code points above U+10FFFF are not characters.
  const bool outside = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return overlong || outside ? 0 : length;
}

size_t utf8_whole(std::string_view cut) noexcept {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(cut[i]); };
  size_t start = cut.size();
  while (start > 0 && cut.size() - start < 3 && is_continuation(byte(start - 1))) --start;
  if (start == 0) return cut.size();
  const unsigned first = byte(--start);
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  return length > cut.size() - start ? start : cut.size();
}

void make_utf8(char* text) noexcept {
  for (std::string_view rest(text); !rest.empty();) {
    const size_t length = utf8_length(rest);
    if (length == 0) *text = '?';
    const size_t step = length == 0 ? 1 : length;
    text += step;
    rest.remove_prefix(step);
  }
}

}  // namespace dsc
