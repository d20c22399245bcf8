#include "common/text_file.hpp"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>

namespace tools {
namespace {

// The limit applies to inputs that are not regular files, because their size is unknown before they are read.
constexpr size_t kMostBytes = size_t{256} << 20;

std::string text_of(std::istream& stream, size_t most) {
  std::string text;
  char piece[1 << 16];
  while (stream.read(piece, sizeof piece) || stream.gcount() > 0) {
    text.append(piece, static_cast<size_t>(stream.gcount()));
    if (text.size() > most)
      throw std::invalid_argument("has more than " + std::to_string(most >> 20) +
                                  " MiB, expected less for input that is not a regular file");
  }
  if (stream.bad() || !stream.eof()) throw std::invalid_argument("cannot be read");
  return text;
}

}  // namespace

std::string text_of_file(const std::string& path) {
  if (path == "-") return text_of(std::cin, kMostBytes);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw std::invalid_argument("is a directory, expected a file");
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) throw std::invalid_argument("cannot be opened");
  return text_of(file, std::filesystem::is_regular_file(path, ignored) ? SIZE_MAX : kMostBytes);
}

}  // namespace tools
