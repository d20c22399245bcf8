// Explains unknown words of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tools {

// Returns text such as "; did you mean 'merge'?", or an empty text if no known word is similar.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

// Returns subcommands, and long options with their dashes.
std::vector<std::string> known_words(const CLI::App& app);

// Returns text such as "there is no 'marge'; did you mean 'merge'?", or the parser's own message if there was
// no unknown word. A second line says which command shows the help.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace tools
