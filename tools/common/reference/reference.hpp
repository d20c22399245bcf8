// Makes man pages and completions of a program from its command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "common/reference/outline.hpp"

namespace tools {

std::string man_page(const CommandOutline& program, const std::string& version, const std::string& date);
std::string bash_completion(const CommandOutline& program);
std::string zsh_completion(const CommandOutline& program);

// Adds the hidden option --help-as man|bash|zsh, which prints one of the texts above and ends the program.
void add_reference(CLI::App& app);

}  // namespace tools
