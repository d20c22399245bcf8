#include "dscrun/token.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace dscrun {
namespace {

constexpr size_t kTokenDigits = 64;
constexpr size_t kMostBytes = 256;  // of a file with a token, including white space

// The rules and messages here are the same as in the library (impl/store/token.cpp).
[[noreturn]] void fail(const std::string& text) { throw std::runtime_error(text); }

[[noreturn]] void fail_errno(const std::string& text) {
  const int error = errno;
  fail(text + ": " + strerror(error) + " (errno " + std::to_string(error) + ")");
}

bool is_hex(char letter) { return std::strchr("0123456789abcdefABCDEF", letter) != nullptr && letter != 0; }

// Removes surrounding white space. Error messages never contain the given text, because it may be a secret.
std::string check_token(const std::string& text, const std::string& source) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  const std::string token = text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
  const std::string expected = std::to_string(kTokenDigits) + " hexadecimal digits";
  if (token.size() != kTokenDigits)
    fail(source + " has " + std::to_string(token.size()) + " characters, expected " + expected);
  const auto wrong = std::find_if_not(token.begin(), token.end(), is_hex);
  if (wrong == token.end()) return token;
  fail(source + " has a character at position " + std::to_string(wrong - token.begin() + 1) +
       " that is not a hexadecimal digit");
}

// Reads from the start if the file can be positioned, because the descriptor may already have been read.
std::string read_token(int fd, const std::string& source) {
  std::array<char, kMostBytes> data{};
  size_t size = 0;
  while (size < data.size()) {
    const size_t left = data.size() - size;
    ssize_t bytes = pread(fd, data.data() + size, left, static_cast<off_t>(size));
    if (bytes < 0 && errno == ESPIPE) bytes = read(fd, data.data() + size, left);
    if (bytes < 0 && errno != EINTR) fail_errno("reading " + source);
    if (bytes == 0) break;
    if (bytes > 0) size += static_cast<size_t>(bytes);
  }
  return check_token(std::string(data.data(), size), source);
}

std::string token_of_descriptor(const std::string& number) {
  const std::string source = "DSC_TOKEN_FD is " + number;
  const char* end = number.data() + number.size();
  int fd = -1;
  const auto [stop, error] = std::from_chars(number.data(), end, fd);
  if (error != std::errc() || stop != end || fd < 0)
    fail("DSC_TOKEN_FD is '" + number.substr(0, 40) + "', expected the number of an open descriptor");
  struct stat status {};
  if (fstat(fd, &status) != 0) fail_errno(source + ", expected an open descriptor");
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode))
    fail(source + ", which is neither a file nor a pipe");
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return read_token(fd, "DSC_TOKEN_FD");
}

std::string token_of_file(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail_errno("DSC_TOKEN_FILE: opening " + path);
  const std::string source = "DSC_TOKEN_FILE " + path;
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail_errno("DSC_TOKEN_FILE: stat of " + path);
  if (!S_ISREG(status.st_mode)) fail(source + " is not a regular file");
  if (status.st_uid != geteuid() && status.st_uid != 0)
    fail(source + " belongs to user " + std::to_string(status.st_uid) + ", expected " +
         std::to_string(geteuid()));
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%03o", status.st_mode & 0777);
  if ((status.st_mode & 077) != 0)
    fail(source + " has mode " + mode.data() + ", expected 600: other users may read or write it");
  return read_token(file.get(), "DSC_TOKEN_FILE");
}

const char* variable_or_null(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

std::string random_hex(size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    unsigned char byte = 0;
    if (getrandom(&byte, 1, 0) != 1) throw std::runtime_error("cannot get random bytes");
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string new_token() { return random_hex(kTokenDigits / 2); }

std::optional<std::string> given_token() {
  if (const char* number = variable_or_null("DSC_TOKEN_FD")) return token_of_descriptor(number);
  if (const char* path = variable_or_null("DSC_TOKEN_FILE")) return token_of_file(path);
  if (const char* text = variable_or_null("DSC_TOKEN")) return check_token(text, "DSC_TOKEN");
  return std::nullopt;
}

UniqueFd token_file(const std::string& token) {
  UniqueFd file(memfd_create("dsc-token", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  const auto size = static_cast<ssize_t>(token.size());
  if (!file || pwrite(file.get(), token.data(), token.size(), 0) != size ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0)
    throw std::runtime_error(std::string("cannot store the token in memory: ") + strerror(errno));
  return file;
}

}  // namespace dscrun
