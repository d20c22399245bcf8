// What to say about a word of the command line that nobody knows.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tools {

// "; did you mean 'merge'?", or nothing when no known word is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

// Subcommands, and long options with their dashes.
std::vector<std::string> known_words(const CLI::App& app);

// "there is no 'marge'; did you mean 'merge'?", or the parser's own words when no unknown word was left over;
// and on a second line whose help to ask.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace tools
