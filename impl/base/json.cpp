#include "base/json.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "base/utf8.hpp"

namespace dsc {
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
  first_ = true;  // no comma between a key and its value
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
      // Uses to_chars(), because it ignores the locale.
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed, decimals);
  plain(end.ec == std::errc() ? std::string_view(digits, static_cast<size_t>(end.ptr - digits)) : "null");
}

void JsonWriter::number(double value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  plain(std::isfinite(value) ? std::string_view(digits, static_cast<size_t>(end.ptr - digits)) : "null");
}

void JsonWriter::quote(std::string_view value) {
  out_ += '"';
  while (!value.empty()) {
    const size_t length = utf8_length(value);
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
