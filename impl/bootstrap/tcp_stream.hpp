// A TCP connection whose every step ends by a deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace dsc {

class TcpStream {
 public:
  TcpStream() = default;

  // Tries all addresses of the host, again and again until one accepts. Throws TIMEOUT, which names the
  // addresses that were tried and what they said; CONFIG if the host cannot be resolved.
  TcpStream(const std::string& host, int32_t port, Deadline deadline);

  explicit operator bool() const { return static_cast<bool>(fd_); }

  // All bytes, or false: the other side has closed, or the deadline has passed.
  bool write(const void* data, size_t bytes, Deadline deadline);

  // As many bytes as come until the other side closes or the deadline passes, at most `bytes`.
  size_t read(void* data, size_t bytes, Deadline deadline);

 private:
  UniqueFd fd_;
};

}  // namespace dsc
