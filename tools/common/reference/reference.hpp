// Man pages and completions of a program, made from its command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "common/reference/outline.hpp"

namespace tools {

std::string man_page(const CommandOutline& program, const std::string& version, const std::string& date);
std::string bash_completion(const CommandOutline& program);
std::string zsh_completion(const CommandOutline& program);

// Adds the option --help-as man|bash|zsh, which no help shows: it prints one of the above and ends the
// program.
void add_reference(CLI::App& app);

}  // namespace tools
