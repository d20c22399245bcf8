#include "bootstrap/tcp_stream.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "bootstrap/unix_socket.hpp"
#include "store/resolve.hpp"

namespace dsc {
namespace {

constexpr int64_t kPatienceMs = 2'000;  // with one address, as long as there are others
constexpr int64_t kPauseMs = 100;       // between two rounds

void set_port(sockaddr* address, int32_t port) {
  const auto network_order = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = network_order;
  else
    reinterpret_cast<sockaddr_in*>(address)->sin_port = network_order;
}

std::string numeric(const addrinfo& address) {
  char text[NI_MAXHOST] = "?";
  ::getnameinfo(address.ai_addr, address.ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

// The socket, or an empty one with errno in `error`.
UniqueFd try_connect(const addrinfo& address, Deadline deadline, int& error) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) {
    error = errno;
    return {};
  }
  error = ::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) {
    if (wait_ready(fd.get(), POLLOUT, deadline)) {
      socklen_t bytes = sizeof error;
      ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    } else {
      error = ETIMEDOUT;
    }
  }
  return error == 0 ? std::move(fd) : UniqueFd();
}

}  // namespace

TcpStream::TcpStream(const std::string& host, int32_t port, Deadline deadline) {
  const Addresses addresses = resolve_host(host, "MASTER_ADDR", deadline);
  std::string tried;
  for (;;) {
    tried.clear();
    for (addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
      set_port(address->ai_addr, port);
      int error = 0;
      fd_ = try_connect(*address, sooner(deadline, Deadline::after_ms(kPatienceMs)), error);
      if (fd_) {
        const int on = 1;  // without it, small requests wait for the answers to earlier ones
        ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        return;
      }
      tried += (tried.empty() ? "" : ", ") + numeric(*address) + " (" + std::strerror(error) + ")";
    }
    if (deadline.passed()) break;
    sleep_until(sooner(deadline, Deadline::after_ms(kPauseMs)));
  }
  fail(DSC_ERR_TIMEOUT, "%.100s:%d cannot be reached; tried %.250s", host.c_str(), port, tried.c_str());
}

bool TcpStream::write(const void* data, size_t bytes, Deadline deadline) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t sent = ::send(fd_.get(), at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      at += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      if (!wait_ready(fd_.get(), POLLOUT, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

size_t TcpStream::read(void* data, size_t bytes, Deadline deadline) {
  size_t got = 0;
  while (got < bytes) {
    const ssize_t part = ::recv(fd_.get(), static_cast<char*>(data) + got, bytes - got, MSG_DONTWAIT);
    if (part > 0)
      got += static_cast<size_t>(part);
    else if (part == 0 || (errno != EAGAIN && errno != EINTR) || !wait_ready(fd_.get(), POLLIN, deadline))
      break;
  }
  return got;
}

}  // namespace dsc
