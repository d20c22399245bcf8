// Abstract unix SOCK_SEQPACKET sockets: they need no file, keep message boundaries, and the kernel reports
// the identity of the peer.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/wait.hpp"

namespace dsc {

// The identity of a peer, as the kernel reports it.
struct PeerCredentials {
  uid_t uid;
  pid_t pid;  // 0 if the process is not visible here (another pid namespace)
};

// Returns a non-blocking listener, or an empty descriptor if the name is taken.
UniqueFd listen_abstract(const std::string& name, int backlog);

// Returns a non-blocking connection, or an empty descriptor with errno in `error`: ECONNREFUSED if nobody
// listens, EAGAIN if the listener's queue is full.
UniqueFd connect_abstract(const std::string& name, int& error);

// Returns the next connection, or an empty descriptor with errno in `error` (EAGAIN: none is pending).
UniqueFd accept_connection(int listen_fd, int& error);

PeerCredentials peer_credentials(int fd);

// Send and receive one whole message of at most `bytes`. Both are non-blocking; a closed connection is an
// error, never a signal.
ssize_t send_message(int fd, const void* data, size_t bytes);
// Returns 0 if the other side is gone; -1 with errno EAGAIN if no message has arrived. For a longer message
// the true length is returned.
ssize_t receive_message(int fd, void* data, size_t bytes);

// The same with one descriptor in addition; -1 means none. A received descriptor is close-on-exec. Receiving
// returns -1 with errno EMFILE if the process has no free descriptor.
ssize_t send_with_descriptor(int fd, const void* data, size_t bytes, int descriptor);
ssize_t receive_with_descriptor(int fd, void* data, size_t bytes, UniqueFd& descriptor);

}  // namespace dsc
