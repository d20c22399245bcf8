// Writes JSON text; commas, quotes and escapes are added automatically.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dsc {

class JsonWriter {
 public:
  void begin_object() { begin('{'); }
  void end_object() { end('}'); }
  void begin_array() { begin('['); }
  void end_array() { end(']'); }
  void key(std::string_view name);

  // Bytes that are not valid UTF-8 become U+FFFD.
  void text(std::string_view value);
  void integer(int64_t value) { plain(std::to_string(value)); }
  void number(double value, int decimals);
  // Writes the fewest digits that give this value again; null for one that is not finite.
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
  bool first_ = true;  // no value has been written into the innermost object or array
};

}  // namespace dsc
