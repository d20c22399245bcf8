// A client's TCP connection, whose every step ends by a deadline. One thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/fork_close.hpp"
#include "store/address.hpp"

namespace dsc {

class TcpStream {
 public:
  TcpStream() = default;

  // One try; without a connection, and with errno in `error` (ETIMEDOUT: no answer by the deadline), if it
  // came to nothing.
  static TcpStream connect(const SocketAddress& address, Deadline deadline, int& error);

  explicit operator bool() const { return fd_.get() >= 0; }

  // Both return how many bytes went or came: fewer if the deadline has passed, or if the connection ended.
  // What can be done at once is done even after the deadline.
  size_t write(std::string_view bytes, Deadline deadline);
  size_t read(char* bytes, size_t count, Deadline deadline);

  // Any thread: ends the connection for both sides.
  void cut() noexcept;

  bool ended() const { return !why_ended_.empty(); }
  const std::string& why_ended() const { return why_ended_; }

  // Of this end, as a number.
  std::string own_address() const;

  // It is open, and nothing came that was not read.
  bool is_quiet() const;

 private:
  explicit TcpStream(ParentFd fd) : fd_(std::move(fd)) {}
  size_t end(const std::string& why, size_t done);

  ParentFd fd_;
  std::string why_ended_;
};

}  // namespace dsc
