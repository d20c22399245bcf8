// Abstract unix SOCK_SEQPACKET sockets: no file in any folder, whole messages, and the kernel says who is
// there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/wait.hpp"

namespace dsc {

struct PeerCredentials {
  uid_t uid;
  pid_t pid;  // 0 when the process is not visible from here (another pid namespace)
};

// A non-blocking listener, or an empty descriptor if somebody holds the name.
UniqueFd listen_abstract(const std::string& name, int backlog);

// A non-blocking connection, or an empty descriptor with errno in `error`: ECONNREFUSED if nobody listens,
// EAGAIN if the listener's queue is full.
UniqueFd connect_abstract(const std::string& name, int& error);

// The next connection, or an empty descriptor with errno in `error` (EAGAIN: none is waiting).
UniqueFd accept_connection(int listen_fd, int& error);

PeerCredentials peer_credentials(int fd);

// One whole message, never more than `bytes`. Both are non-blocking; a dead other side is an error, never a
// signal.
ssize_t send_message(int fd, const void* data, size_t bytes);
// 0: the other side is gone; -1 with errno EAGAIN: nothing yet. A longer message is given as its true length.
ssize_t receive_message(int fd, void* data, size_t bytes);

// The same with one descriptor beside the bytes; -1: none. What comes is close-on-exec; -1 with errno EMFILE:
// there was no room for it.
ssize_t send_with_descriptor(int fd, const void* data, size_t bytes, int descriptor);
ssize_t receive_with_descriptor(int fd, void* data, size_t bytes, UniqueFd& descriptor);

}  // namespace dsc
