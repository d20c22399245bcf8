// Writes the files that options of a program name.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tools {

// Validates an output file. "-" is refused, because other output goes to stdout, and so are names that look
// like an option.
CLI::Validator file_to_write();

// Throws std::invalid_argument if the file cannot be written. Changes nothing. A program that measures for
// minutes calls this first.
void expect_writable(const std::string& path);

// Writes a file, and reports it on stderr. Throws std::runtime_error if it cannot be written.
void write_file(const std::string& path, const std::string& text);

}  // namespace tools
