#include "base/json.hpp"

#include <charconv>
#include <cstdio>
#include <system_error>

namespace dsc {
namespace {

bool is_continuation(unsigned char byte) noexcept { return (byte & 0xc0) == 0x80; }

// Length of the UTF-8 character at the start of the text; 0 when there is none.
size_t character_length(std::string_view text) noexcept {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t i = 1; i < length; ++i)
    if (!is_continuation(static_cast<unsigned char>(byte(i)))) return 0;
  const unsigned second = byte(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool outside = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);  // surrogates
  return overlong || outside ? 0 : length;
}

}  // namespace

void JsonWriter::separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

void JsonWriter::begin(char bracket) {
  separate();
  out_ += bracket;
  first_ = true;
}

void JsonWriter::end(char bracket) {
  out_ += bracket;
  first_ = false;
}

void JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  out_ += ':';
  first_ = true;  // its value needs no comma
}

void JsonWriter::plain(std::string_view value) {
  separate();
  out_ += value;
}

void JsonWriter::text(std::string_view value) {
  separate();
  quote(value);
}

void JsonWriter::number(double value, int decimals) {
  char digits[64];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed, decimals);  // no locale
  plain(end.ec == std::errc() ? std::string_view(digits, static_cast<size_t>(end.ptr - digits)) : "null");
}

void JsonWriter::quote(std::string_view value) {
  out_ += '"';
  while (!value.empty()) {
    const size_t length = character_length(value);
    const char c = value.front();
    if (length == 0) {
      out_ += "\xef\xbf\xbd";
    } else if (c == '"' || c == '\\') {
      out_ += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out_ += code;
    } else {
      out_ += value.substr(0, length);
    }
    value.remove_prefix(length == 0 ? 1 : length);
  }
  out_ += '"';
}

}  // namespace dsc
