#include "bootstrap/unix_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace dsc {
namespace {

struct Address {
  sockaddr_un un{};
  socklen_t bytes = 0;

  // A leading zero byte makes the name abstract. Such a name exists in the network namespace until its socket
  // is closed.
  explicit Address(const std::string& name) {
    if (name.empty() || name.size() > sizeof un.sun_path - 1)
      fail(DSC_ERR_INTERNAL, "the socket name has %zu bytes, expected 1 to %zu", name.size(),
           sizeof un.sun_path - 1);
    un.sun_family = AF_UNIX;
    std::memcpy(un.sun_path + 1, name.data(), name.size());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&un); }
};

UniqueFd make_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail_errno(errno, "socket(AF_UNIX, SOCK_SEQPACKET)");
  return fd;
}

void take_descriptor(msghdr& message, UniqueFd& descriptor) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    descriptor.reset(fd);
  }
}

}  // namespace

UniqueFd listen_abstract(const std::string& name, int backlog) {
  const Address address(name);
  UniqueFd fd = make_socket();
  if (::bind(fd.get(), address.get(), address.bytes) != 0) {
    if (errno == EADDRINUSE) return {};
    fail_errno(errno, "bind to the abstract socket '%s'", name.c_str());
  }
  if (::listen(fd.get(), backlog) != 0) fail_errno(errno, "listen on the abstract socket '%s'", name.c_str());
  return fd;
}

UniqueFd connect_abstract(const std::string& name, int& error) {
  const Address address(name);
  UniqueFd fd = make_socket();
  if (::connect(fd.get(), address.get(), address.bytes) == 0) {
    error = 0;
    return fd;
  }
  error = errno;
  if (error != ECONNREFUSED && error != EAGAIN && error != EINTR)
    fail_errno(error, "connect to the abstract socket '%s'", name.c_str());
  return {};
}

UniqueFd accept_connection(int listen_fd, int& error) {
  UniqueFd fd(::accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  error = fd ? 0 : errno;
  return fd;
}

PeerCredentials peer_credentials(int fd) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) fail_errno(errno, "SO_PEERCRED");
  return {credentials.uid, credentials.pid};
}

ssize_t send_message(int fd, const void* data, size_t bytes) {
  return send_with_descriptor(fd, data, bytes, -1);
}

ssize_t receive_message(int fd, void* data, size_t bytes) {
  UniqueFd unwanted;
  return receive_with_descriptor(fd, data, bytes, unwanted);
}

ssize_t send_with_descriptor(int fd, const void* data, size_t bytes, int descriptor) {
  iovec part{const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ssize_t sent;
  do sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent;
}

ssize_t receive_with_descriptor(int fd, void* data, size_t bytes, UniqueFd& descriptor) {
  for (bool was_reset = false;;) {
    iovec part{data, bytes};
    // The buffer has space for one descriptor. The kernel closes any further descriptors.
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    // CMSG_SPACE() includes padding, which could hold a second descriptor that no code would close.
    message.msg_controllen = CMSG_LEN(sizeof(int));
    const ssize_t got = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
    if (got >= 0) {
      take_descriptor(message, descriptor);
      if (descriptor || (message.msg_flags & MSG_CTRUNC) == 0) return got;
      errno = EMFILE;  // the kernel drops the descriptor if the process cannot have another one
      return -1;
    }
    if (errno != EINTR && errno != ECONNRESET) return got;
    // ECONNRESET means that the peer closed the connection without reading our data. Its earlier messages are
    // still in the queue.
    if (errno == ECONNRESET && std::exchange(was_reset, true)) return 0;
  }
}

}  // namespace dsc
