// A client's TCP connection with a deadline for every step. May be used by one thread at a time.
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

  // Tries once. On failure the result has no connection, and `error` is an errno value. It is ETIMEDOUT if
  // there was no answer by the deadline.
  static TcpStream connect(const SocketAddress& address, Deadline deadline, int& error);

  explicit operator bool() const { return fd_.get() >= 0; }

  // These return the number of bytes transferred. It is smaller than requested if the deadline has passed or
  // the connection has ended. Data that can be transferred without waiting is transferred even after the
  // deadline.
  size_t write(std::string_view bytes, Deadline deadline);
  size_t read(char* bytes, size_t count, Deadline deadline);

  // Gives the peer more time to read, because a large frame follows, or ends that.
  void expect_slow_reader(bool is_large) noexcept;

  // Ends the connection in both directions. Any thread may call this.
  void cut() noexcept;

  bool ended() const { return !why_ended_.empty(); }
  const std::string& why_ended() const { return why_ended_; }

  // Returns the numeric address of this process on the connection.
  std::string own_address() const;

  // Returns whether the connection is open and has no unread data.
  bool has_no_input() const;

 private:
  explicit TcpStream(ParentFd fd) : fd_(std::move(fd)) {}
  size_t end(const std::string& why, size_t done);

  ParentFd fd_;
  std::string why_ended_;
};

// Gives the peer of a stream more time to read, while this object exists.
class SlowReader {
 public:
  SlowReader(TcpStream& stream, bool is_slow) noexcept : stream_(is_slow ? &stream : nullptr) {
    if (stream_) stream_->expect_slow_reader(true);
  }
  ~SlowReader() {
    if (stream_) stream_->expect_slow_reader(false);
  }
  SlowReader(const SlowReader&) = delete;
  SlowReader& operator=(const SlowReader&) = delete;

 private:
  TcpStream* const stream_;
};

}  // namespace dsc
