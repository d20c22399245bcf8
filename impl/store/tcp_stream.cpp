#include "store/tcp_stream.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/wait.hpp"
#include "store/tcp_options.hpp"

namespace dsc {

TcpStream TcpStream::connect(const SocketAddress& address, Deadline deadline, int& error) {
  ParentFd fd(UniqueFd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  error = fd.get() >= 0 && ::connect(fd.get(), address.get(), address.bytes) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) {
    socklen_t bytes = sizeof error;
    if (!wait_ready(fd.get(), POLLOUT, deadline))
      error = ETIMEDOUT;
    else if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
      error = errno;
  }
  if (error != 0) return {};
  set_control_options(fd.get());
  return TcpStream(std::move(fd));
}

void TcpStream::expect_slow_reader(bool is_large) noexcept { set_unread_limit(fd_.get(), is_large); }

size_t TcpStream::end(const std::string& why, size_t done) {
  why_ended_ = why;
  return done;
}

// Tries to send before it waits, so that it sends without waiting even after the deadline.
size_t TcpStream::write(std::string_view bytes, Deadline deadline) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t part =
        ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    const int error = errno;
    if (part >= 0)
      sent += static_cast<size_t>(part);
    else if (error != EAGAIN && error != EINTR)
      return end(std::generic_category().message(error), sent);
    else if (error == EAGAIN && !wait_ready(fd_.get(), POLLOUT, deadline))
      return sent;
  }
  return sent;
}

// Tries to receive before it waits, so that data that has arrived is read even after the deadline.
size_t TcpStream::read(char* bytes, size_t count, Deadline deadline) {
  size_t came = 0;
  while (came < count) {
    const ssize_t part = ::recv(fd_.get(), bytes + came, count - came, MSG_DONTWAIT);
    const int error = errno;
    if (part > 0)
      came += static_cast<size_t>(part);
    else if (part == 0)
      return end("the connection was closed", came);
    else if (error != EAGAIN && error != EINTR)
      return end(std::generic_category().message(error), came);
    else if (error == EAGAIN && !wait_ready(fd_.get(), POLLIN, deadline))
      return came;
  }
  return came;
}

void TcpStream::cut() noexcept { ::shutdown(fd_.get(), SHUT_RDWR); }

bool TcpStream::has_no_input() const {
  char byte;
  return fd_.get() >= 0 && ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

std::string TcpStream::own_address() const {
  SocketAddress own;
  own.bytes = sizeof own.storage;
  if (::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.bytes) != 0)
    fail_errno(errno, "getsockname");
  return to_text(own);
}

}  // namespace dsc
