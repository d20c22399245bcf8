#include "pipeline/text_reader.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/error.hpp"

namespace dsc {

char TextReader::get() {
  const char c = text_[position_++];
  if (c == '\n') {
    ++line_;
    line_start_ = position_;
  }
  return c;
}

void TextReader::skip_spaces() {
  while (!at_end() && (text_[position_] == ' ' || text_[position_] == '\t' || text_[position_] == '\r'))
    ++position_;
}

bool TextReader::take(std::string_view words) {
  if (!text_.substr(position_).starts_with(words)) return false;
  position_ += words.size();
  return true;
}

void TextReader::expect(std::string_view words) {
  if (!take(words)) refuse(("\"" + std::string(words) + "\"").c_str());
}

void TextReader::next_line() {
  skip_spaces();
  if (!at_end_of_line()) refuse("the end of the line");
  if (!at_end()) get();
}

int32_t TextReader::number() {
  const char* const first = text_.data() + position_;
  const char* const end = text_.data() + text_.size();
  int32_t value = 0;
  const auto [after, error] = std::from_chars(first, end, value);
  if (error != std::errc{} || *first == '-') refuse("a number from 0 to 2147483647");
  position_ += static_cast<size_t>(after - first);
  return value;
}

std::string_view TextReader::until(std::string_view ends) {
  skip_spaces();
  const size_t start = position_;
  while (!at_end_of_line() && ends.find(text_[position_]) == std::string_view::npos) ++position_;
  std::string_view piece = text_.substr(start, position_ - start);
  while (!piece.empty() && (piece.back() == ' ' || piece.back() == '\t' || piece.back() == '\r'))
    piece.remove_suffix(1);
  return piece;
}

void TextReader::refuse(const char* expected) const {
  const size_t end = std::min(text_.find('\n', position_), text_.size());
  refuse_at(position_, text_.substr(position_, end - position_), expected);
}

void TextReader::refuse(std::string_view piece, const char* expected) const {
  refuse_at(static_cast<size_t>(piece.data() - text_.data()), piece, expected);
}

// The error message shows only printable characters of the text, up to a limit.
void TextReader::refuse_at(size_t position, std::string_view piece, const char* expected) const {
  constexpr size_t kShown = 32;
  std::string shown(piece.substr(0, kShown));
  std::ranges::replace_if(
      shown, [](char c) { return c < ' ' || c > '~'; }, '?');
  if (piece.empty())
    fail(DSC_ERR_INVALID_ARG, "line %zu, column %zu: the line ends, expected %s", line_,
         position - line_start_ + 1, expected);
  fail(DSC_ERR_INVALID_ARG, "line %zu, column %zu: \"%s\", expected %s", line_, position - line_start_ + 1,
       shown.c_str(), expected);
}

}  // namespace dsc
