// Reads text line by line and tracks its position for error messages.
#pragma once

#include <cstdint>
#include <string_view>

namespace dsc {

// A cursor in a text. The text must outlive it.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  bool at_end() const { return position_ == text_.size(); }
  bool at_end_of_line() const { return at_end() || text_[position_] == '\n'; }
  bool only_blank() const { return text_.find_first_not_of(" \t\r\n", position_) == std::string_view::npos; }
  char peek() const { return at_end() ? '\0' : text_[position_]; }
  size_t line() const { return line_; }

  char get();
  void skip_spaces();  // does not go beyond the end of the line
  bool take(std::string_view words);
  void expect(std::string_view words);
  void next_line();  // goes to the next line; throws unless the cursor is at the end of a line
  int32_t number();  // reads a number; throws unless it is 0 or more

  // Returns the text up to one of the characters in `ends` or the end of the line, without surrounding
  // spaces.
  std::string_view until(std::string_view ends);

  // Throws INVALID_ARG with line, column, the text at the cursor, and what was expected.
  [[noreturn]] void refuse(const char* expected) const;
  // Throws the same error for a given piece of the text.
  [[noreturn]] void refuse(std::string_view piece, const char* expected) const;

 private:
  [[noreturn]] void refuse_at(size_t position, std::string_view piece, const char* expected) const;

  std::string_view text_;
  size_t position_ = 0;
  size_t line_ = 1;
  size_t line_start_ = 0;
};

}  // namespace dsc
