#include "common/output_file.hpp"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>

namespace tools {

CLI::Validator file_to_write() {
  const auto check = [](const std::string& text) {
    return text.empty() || text == "-" ? "expected a file to write, got '" + text + "'" : std::string();
  };
  return CLI::Validator(check, "");
}

void expect_writable(const std::string& path) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  if (!std::ofstream(path, std::ios::app)) throw std::invalid_argument(path + ": cannot be written");
  if (!existed) std::filesystem::remove(path, ignored);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot be written");
  std::cerr << "wrote " << path << "\n";
}

}  // namespace tools
