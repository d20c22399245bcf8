// Writes JSON text. Adds commas, quotes and escapes automatically.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace dsc {

class JsonWriter {
 public:
  void begin_object() { begin('{'); }
  void begin_object(std::string_view name) { key(name), begin('{'); }
  void end_object() { end('}'); }
  void begin_array() { begin('['); }
  void begin_array(std::string_view name) { key(name), begin('['); }
  void end_array() { end(']'); }
  void key(std::string_view name);

  template <typename T>
  void field(std::string_view name, const T& value) {
    key(name);
    if constexpr (std::is_same_v<T, bool>)
      boolean(value);
    else if constexpr (std::is_integral_v<T>)
      integer(static_cast<int64_t>(value));
    else if constexpr (std::is_floating_point_v<T>)
      number(value);
    else
      text(value);
  }
  // Writes null for a text that is empty or NULL.
  void field_or_null(std::string_view name, std::string_view value) {
    key(name);
    value.empty() ? null() : text(value);
  }
  void field_or_null(std::string_view name, const char* value) {
    field_or_null(name, std::string_view(value ? value : ""));
  }
  void field_or_null(std::string_view name, bool known, int64_t value) {
    key(name);
    known ? integer(value) : null();
  }

  // Replaces bytes that are not valid UTF-8 by U+FFFD.
  void text(std::string_view value);
  void integer(int64_t value) { plain(std::to_string(value)); }
  void number(double value, int decimals);
  // Writes the shortest number that reads back as the same value, or null if the value is not finite.
  void number(double value);
  void boolean(bool value) { plain(value ? "true" : "false"); }
  void null() { plain("null"); }

  std::string take() { return std::move(out_); }

 private:
  void begin(char bracket);
  void end(char bracket);
  void separate();
  void plain(std::string_view value);
  void quote(std::string_view value);

  std::string out_;
  bool first_ = true;  // whether the innermost object or array is still empty
};

}  // namespace dsc
