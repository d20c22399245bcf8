// What to say about a word of the command line that nobody knows.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace dscctl {

// "there is no 'marge'; did you mean 'merge'?", or the parser's own words when no unknown word was left over.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace dscctl
