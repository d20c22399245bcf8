#include "store/token.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/random.hpp"

namespace dsc {
namespace {

constexpr size_t kDigits = 64;
constexpr size_t kMostBytes = 256;  // limit on the size of a token file, including white space

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Reads without moving the file position, because several ranks may share the open file description.
std::string read_token(int fd, const std::string& source) {
  char text[kMostBytes];
  size_t bytes = 0;
  while (bytes < sizeof text) {
    const ssize_t got = ::pread(fd, text + bytes, sizeof text - bytes, static_cast<off_t>(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(errno, "reading %s", source.c_str());
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
  }
  std::string token(text, bytes);
  explicit_bzero(text, sizeof text);
  return token;
}

std::string token_of_descriptor(const std::string& number) {
  int fd = -1;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), fd);
  if (error != std::errc{} || stop != number.data() + number.size() || fd < 0)
    fail(DSC_ERR_CONFIG, "DSC_TOKEN_FD is '%.40s', expected the number of an open descriptor",
         number.c_str());
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_errno(errno, "DSC_TOKEN_FD is %d, expected an open descriptor", fd);
  if (!S_ISREG(status.st_mode))  // a pipe can be read only once, and reading may block
    fail(DSC_ERR_CONFIG, "DSC_TOKEN_FD is %d, expected the descriptor of a regular file or of a memfd", fd);
  return read_token(fd, "DSC_TOKEN_FD");
}

// Refuses files that other users may read or write, as ssh does for private keys.
std::string token_of_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail_errno(errno, "DSC_TOKEN_FILE: opening %.200s", path.c_str());
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno(errno, "DSC_TOKEN_FILE: stat of %.200s", path.c_str());
  if (!S_ISREG(status.st_mode))
    fail(DSC_ERR_CONFIG, "DSC_TOKEN_FILE %.200s is not a regular file", path.c_str());
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    fail(DSC_ERR_AUTH, "DSC_TOKEN_FILE %.200s belongs to user %u, expected %u or root", path.c_str(),
         status.st_uid, ::geteuid());
  if ((status.st_mode & 077) != 0)
    fail(DSC_ERR_AUTH, "DSC_TOKEN_FILE %.200s has mode %03o, expected 600: other users may read or write it",
         path.c_str(), status.st_mode & 0777);
  return read_token(file.get(), "DSC_TOKEN_FILE");
}

}  // namespace

Digest parse_token(std::string_view text, const std::string& source) {
  const std::string_view digits = trimmed(text);
  if (digits.size() != kDigits)
    fail(DSC_ERR_CONFIG, "%s has %zu characters, expected %zu hexadecimal digits", source.c_str(),
         digits.size(), kDigits);
  Digest token;
  for (size_t i = 0; i < token.size(); ++i) {
    const int high = digit_value(digits[2 * i]);
    const int low = digit_value(digits[2 * i + 1]);
    if (high < 0 || low < 0)
      fail(DSC_ERR_CONFIG, "%s has a character at position %zu that is not a hexadecimal digit",
           source.c_str(), 2 * i + (high < 0 ? 1 : 2));
    token[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return token;
}

Token find_token(const char* given, const Environment& environment) {
  if (given) return parse_token(given, "options->token");
  if (const auto number = environment("DSC_TOKEN_FD"))
    return parse_token(token_of_descriptor(*number), "DSC_TOKEN_FD");
  if (const auto path = environment("DSC_TOKEN_FILE"))
    return parse_token(token_of_file(*path), "DSC_TOKEN_FILE");
  if (const auto text = environment("DSC_TOKEN")) return parse_token(*text, "DSC_TOKEN");
  return std::nullopt;
}

std::string random_token() { return hex(random_nonce()) + hex(random_nonce()); }

}  // namespace dsc
