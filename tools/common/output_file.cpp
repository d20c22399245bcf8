#include "common/output_file.hpp"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>

namespace tools {

CLI::Validator file_to_write() {
  const auto check = [](const std::string& text) {
    const bool is_file = !text.empty() && text.front() != '-';
    return is_file ? std::string() : "expected a file to write, got '" + text + "'";
  };
  return CLI::Validator(check, "");
}

void expect_writable(const std::string& path) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  if (!std::ofstream(path, std::ios::app)) throw std::invalid_argument(path + ": cannot be written");
  if (!existed) std::filesystem::remove(std::filesystem::canonical(path, ignored), ignored);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot be written");
  std::cerr << "wrote " << path << "\n";
}

}  // namespace tools
