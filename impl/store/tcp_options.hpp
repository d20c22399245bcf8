// Socket options for both ends of a connection. Small messages are sent immediately. If the host of the peer
// or its link fails, this is detected within about four seconds.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace dsc {

inline void set_tcp_option(int fd, int level, int name, int value) noexcept {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

// Sets the options of a data connection, whose peer may not read for a long time. TCP_USER_TIMEOUT is not
// set, because it would treat such a peer as dead.
inline void set_data_options(int fd) noexcept {
  set_tcp_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_tcp_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_tcp_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_tcp_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_tcp_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// Sets how long a peer may leave data unread before the connection ends. A small frame fits into the buffers
// of the sockets, so only the peer's kernel must take it. A large frame waits for the peer's program, which
// may lack a processor for a while.
inline void set_unread_limit(int fd, bool is_large) noexcept {
  set_tcp_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, is_large ? 10000 : 3000);
}

// Sets the options of a control connection. Both ends of such a connection read it all the time.
inline void set_control_options(int fd) noexcept {
  set_data_options(fd);
  set_unread_limit(fd, false);
}

}  // namespace dsc
