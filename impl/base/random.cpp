#include "base/random.hpp"

#include <sys/random.h>

#include <cerrno>

#include "base/error.hpp"

namespace dsc {

Nonce random_nonce() {
  Nonce nonce;
  ssize_t got;
  do got = ::getrandom(nonce.data(), nonce.size(), 0);
  while (got < 0 && errno == EINTR);
  // The kernel always fills requests of up to 256 bytes completely.
  if (got != static_cast<ssize_t>(nonce.size())) fail_errno(errno, "getrandom");
  return nonce;
}

std::string hex(const Nonce& nonce) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * nonce.size());
  for (const uint8_t byte : nonce) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace dsc
