#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "bootstrap/endpoint.hpp"
#include "bootstrap/endpoint_wire.hpp"
#include "bootstrap/unix_socket.hpp"

namespace dsc {
namespace {

constexpr int64_t kFetchCheckMs = 50;
constexpr int64_t kRetryMs = 2;

RequestWire encode(const ItemKey& key) {
  RequestWire wire{};
  wire.magic = kEndpointMagic;
  wire.wire_version = kEndpointVersion;
  wire.kind = key.kind;
  std::copy(key.nonce.begin(), key.nonce.end(), wire.nonce);
  wire.id = key.id;
  wire.rank = key.rank;
  return wire;
}

void check_user(int fd, const std::string& owner) {
  const PeerCredentials holder = peer_credentials(fd);
  if (holder.uid != ::geteuid())
    fail(DSC_ERR_ADDR_IN_USE, "the endpoint of %s belongs to pid %d of user %u, expected user %u",
         owner.c_str(), static_cast<int>(holder.pid), static_cast<unsigned>(holder.uid),
         static_cast<unsigned>(::geteuid()));
}

// Returns the descriptor, or an empty one if the request should be repeated. It should be repeated if the
// connection broke, because the next connect shows whether the owner died. It should also be repeated if the
// owner has no free descriptors; then `crowded` is set.
UniqueFd take_reply(int fd, const std::string& owner, bool& crowded) {
  ReplyWire wire{};
  UniqueFd item;
  const ssize_t got = receive_with_descriptor(fd, &wire, sizeof wire, item);
  if (got < 0 && errno == EMFILE) fail_errno(errno, "receiving a file descriptor from %s", owner.c_str());
  if (got <= 0) return {};
  if (got != sizeof wire || wire.magic != kEndpointMagic || wire.wire_version != kEndpointVersion)
    fail(DSC_ERR_PROTOCOL, "the endpoint of %s answers, but is not libdsc (got %zd bytes)", owner.c_str(),
         got);
  crowded = wire.code == DSC_ERR_SYSTEM;
  if (crowded) return {};
  if (wire.code == DSC_ERR_PEER_LEFT) fail(DSC_ERR_PEER_LEFT, "%s has left the world", owner.c_str());
  if (wire.code != DSC_OK || !item)
    fail(DSC_ERR_PROTOCOL, "the endpoint of %s answered with status %d instead of a file descriptor",
         owner.c_str(), wire.code);
  return item;
}

UniqueFd attempt(const std::string& endpoint, const std::string& owner, const ItemKey& key, Deadline deadline,
                 const std::function<void()>& check, bool& crowded) {
  int error = 0;
  const UniqueFd connection = connect_abstract(endpoint, error);
  if (error == ECONNREFUSED)
    fail(DSC_ERR_PEER_DEAD, "%s died: no process listens at its endpoint %s", owner.c_str(),
         endpoint.c_str());
  if (!connection) return {};
  check_user(connection.get(), owner);
  const RequestWire request = encode(key);
  const ssize_t sent = send_message(connection.get(), &request, sizeof request);
  // If the connection is closed, receiving returns the reason.
  if (sent < 0 && errno != EPIPE && errno != ECONNRESET) return {};
  while (
      !wait_ready(connection.get(), POLLIN, {std::min(deadline.ns, Deadline::after_ms(kFetchCheckMs).ns)})) {
    if (check) check();
    if (deadline.passed()) return {};
  }
  return take_reply(connection.get(), owner, crowded);
}

}  // namespace

// Each attempt uses a new connection, because the owner may drop a waiting connection to accept others.
UniqueFd fetch(const std::string& endpoint, const std::string& owner, const ItemKey& key, Deadline deadline,
               const std::function<void()>& check) {
  const int64_t start_ns = now_ns();
  bool crowded = false;
  for (;;) {
    if (UniqueFd item = attempt(endpoint, owner, key, deadline, check, crowded)) return item;
    if (check) check();
    if (deadline.passed() && crowded)
      fail(DSC_ERR_SYSTEM,
           "%s could not answer, because its process or its host has no free file descriptors; raise the "
           "limit "
           "(ulimit -n) or close files there",
           owner.c_str());
    if (deadline.passed())
      fail(DSC_ERR_TIMEOUT,
           "%s did not send the file descriptor of a shared object within %lld ms (object %llu of kind %u)",
           owner.c_str(), static_cast<long long>((now_ns() - start_ns) / kNsPerMs),
           static_cast<unsigned long long>(key.id), key.kind);
    sleep_until({std::min(deadline.ns, Deadline::after_ms(kRetryMs).ns)});
  }
}

}  // namespace dsc
