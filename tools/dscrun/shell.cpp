#include "dscrun/shell.hpp"

#include <stdexcept>

namespace dscrun {

void append(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

std::string shell_quote(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      text += "'\\''";
    } else {
      text += letter;
    }
  }
  return text + "'";
}

std::string shell_join(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + shell_quote(word);
  return text;
}

Words shell_split(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;  // true inside a word
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    const bool blank = letter == ' ' || letter == '\t' || letter == '\n';
    if (quote == 0 && blank) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (letter == quote) {
      quote = 0;
    } else if (quote == 0 && (letter == '\'' || letter == '"')) {
      quote = letter;
    } else if (quote != '\'' && letter == '\\' && i + 1 < text.size()) {
      words.back() += text[++i];
    } else {
      words.back() += letter;
    }
  }
  if (quote != 0) throw std::invalid_argument(std::string("the quote ") + quote + " is not closed");
  return words;
}

}  // namespace dscrun
