// Writes JSON: commas, quotes and escapes come by themselves.
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

  // What is no UTF-8 becomes U+FFFD.
  void text(std::string_view value);
  void integer(int64_t value) { plain(std::to_string(value)); }
  void number(double value, int decimals);
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
  bool first_ = true;  // of the innermost object or array
};

}  // namespace dsc
