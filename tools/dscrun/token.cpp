#include "dscrun/token.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace dscrun {
namespace {

constexpr size_t kTokenDigits = 64;

bool is_hex(char letter) { return std::strchr("0123456789abcdefABCDEF", letter) != nullptr && letter != 0; }

std::string check_token(std::string text, const char* source) {
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.size() == kTokenDigits && std::all_of(text.begin(), text.end(), is_hex)) return text;
  throw std::runtime_error(std::string(source) + ": expected " + std::to_string(kTokenDigits) +
                           " hexadecimal digits, got " + std::to_string(text.size()) + " bytes");
}

// From the start where there is one: whoever had the descriptor before may have read it already.
std::string read_token(int fd, const char* source) {
  std::array<char, kTokenDigits + 2> data{};
  size_t size = 0;
  while (size < data.size()) {
    const size_t left = data.size() - size;
    ssize_t bytes = pread(fd, data.data() + size, left, static_cast<off_t>(size));
    if (bytes < 0 && errno == ESPIPE) bytes = read(fd, data.data() + size, left);
    if (bytes < 0 && errno != EINTR) throw std::runtime_error(std::string(source) + ": " + strerror(errno));
    if (bytes == 0) break;
    if (bytes > 0) size += static_cast<size_t>(bytes);
  }
  return check_token(std::string(data.data(), size), source);
}

const char* variable(const char* name) {
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
  if (const char* number = variable("DSC_TOKEN_FD")) {
    char* end = nullptr;
    const long fd = std::strtol(number, &end, 10);
    if (*end != '\0' || fd < 0 || fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC) != 0)
      throw std::runtime_error("DSC_TOKEN_FD: expected an open descriptor, got '" + std::string(number) +
                               "'");
    return read_token(static_cast<int>(fd), "DSC_TOKEN_FD");
  }
  if (const char* path = variable("DSC_TOKEN_FILE")) {
    const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
    if (!file) throw std::runtime_error("DSC_TOKEN_FILE '" + std::string(path) + "': " + strerror(errno));
    return read_token(file.get(), "DSC_TOKEN_FILE");
  }
  if (const char* text = variable("DSC_TOKEN")) return check_token(text, "DSC_TOKEN");
  return std::nullopt;
}

UniqueFd token_file(const std::string& token) {
  UniqueFd file(memfd_create("dsc-token", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  const auto size = static_cast<ssize_t>(token.size());
  if (!file || pwrite(file.get(), token.data(), token.size(), 0) != size ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0)
    throw std::runtime_error(std::string("cannot keep the token: ") + strerror(errno));
  return file;
}

}  // namespace dscrun
