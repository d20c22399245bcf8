// Abstract Unix sockets of type SOCK_SEQPACKET. They need no file and keep message boundaries, and the kernel
// reports the identity of the peer.
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
  pid_t pid;  // 0 if the process is in another pid namespace and not visible here
};

// Returns a non-blocking listener, or an empty descriptor if the name is taken.
UniqueFd listen_abstract(const std::string& name, int backlog);

// Returns a non-blocking connection. On failure returns an empty descriptor and sets `error` to an errno
// value: ECONNREFUSED if no process listens, EAGAIN if the listener's queue is full.
UniqueFd connect_abstract(const std::string& name, int& error);

// Returns the next connection. On failure returns an empty descriptor and sets `error` to an errno value,
// such as EAGAIN if no connection is pending.
UniqueFd accept_connection(int listen_fd, int& error);

PeerCredentials peer_credentials(int fd);

// These send and receive one whole message of at most `bytes` bytes. Both are non-blocking. On a closed
// connection they return an error and raise no signal.
ssize_t send_message(int fd, const void* data, size_t bytes);
// Returns 0 if the peer is gone, and -1 with errno EAGAIN if no message has arrived. If the message was
// longer than `bytes`, returns its full length.
ssize_t receive_message(int fd, void* data, size_t bytes);

// These send and receive a message together with a descriptor; -1 means no descriptor. A received descriptor
// is close-on-exec. If the process has no free descriptor, receiving returns -1 with errno EMFILE.
ssize_t send_with_descriptor(int fd, const void* data, size_t bytes, int descriptor);
ssize_t receive_with_descriptor(int fd, void* data, size_t bytes, UniqueFd& descriptor);

}  // namespace dsc
