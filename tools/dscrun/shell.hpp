// Quotes words for a POSIX shell, and splits a command line into words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dscrun {

using Words = std::vector<std::string>;

void append(Words& words, const Words& more);

// Returns text that a shell reads as exactly this word.
std::string shell_quote(std::string_view word);
std::string shell_join(const Words& words);

// Returns the words that a shell would read. Blanks, quotes and backslashes have their usual meaning, and
// nothing is expanded. Throws std::invalid_argument if a quote is not closed.
Words shell_split(std::string_view text);

}  // namespace dscrun
