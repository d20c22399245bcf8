// Words for a POSIX shell, and from one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dscrun {

using Words = std::vector<std::string>;

void append(Words& words, const Words& more);

// The text that a shell reads as exactly this word.
std::string shell_quote(std::string_view word);
std::string shell_join(const Words& words);

// The words that a shell would find: blanks, quotes and backslashes count, nothing is expanded. Throws
// std::invalid_argument for an open quote.
Words shell_split(std::string_view text);

}  // namespace dscrun
