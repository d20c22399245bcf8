// Walks through text line by line, and knows where it is.
#pragma once

#include <cstdint>
#include <string_view>

namespace dsc {

class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  bool at_end() const { return position_ == text_.size(); }
  bool at_end_of_line() const { return at_end() || text_[position_] == '\n'; }
  bool only_blank() const { return text_.find_first_not_of(" \t\r\n", position_) == std::string_view::npos; }
  char peek() const { return at_end() ? '\0' : text_[position_]; }
  size_t line() const { return line_; }

  char get();
  void skip_spaces();  // not past the end of a line
  bool take(std::string_view words);
  void expect(std::string_view words);
  void next_line();  // expects that the line has ended
  int32_t number();  // 0 or more

  // Up to one of `ends` or the end of the line, without spaces around it.
  std::string_view until(std::string_view ends);

  // Throws INVALID_ARG: line, column, what is there, and what was expected.
  [[noreturn]] void refuse(const char* expected) const;
  // Of a piece of the text.
  [[noreturn]] void refuse(std::string_view piece, const char* expected) const;

 private:
  [[noreturn]] void refuse_at(size_t position, std::string_view piece, const char* expected) const;

  std::string_view text_;
  size_t position_ = 0;
  size_t line_ = 1;
  size_t line_start_ = 0;
};

}  // namespace dsc
