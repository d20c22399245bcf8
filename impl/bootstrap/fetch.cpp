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

constexpr int64_t kCheckMs = 50;
constexpr int64_t kPauseMs = 2;

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

void check_owner(int fd, const ItemKey& key) {
  const PeerCredentials owner = peer_credentials(fd);
  if (owner.uid != ::geteuid())
    fail(DSC_ERR_ADDR_IN_USE, "the endpoint of rank %u is held by pid %d of user %u, expected user %u",
         key.rank, static_cast<int>(owner.pid), static_cast<unsigned>(owner.uid),
         static_cast<unsigned>(::geteuid()));
}

// The descriptor, or an empty one to try again: if the connection broke (whether its owner died, the next
// connect tells), or if its owner is `crowded`: out of descriptors.
UniqueFd take_reply(int fd, const ItemKey& key, bool& crowded) {
  ReplyWire wire{};
  UniqueFd item;
  const ssize_t got = receive_with_descriptor(fd, &wire, sizeof wire, item);
  if (got < 0 && errno == EMFILE) fail_errno(errno, "taking a descriptor from rank %u", key.rank);
  if (got <= 0) return {};
  if (got != sizeof wire || wire.magic != kEndpointMagic || wire.wire_version != kEndpointVersion)
    fail(DSC_ERR_PROTOCOL, "the endpoint of rank %u answers, but is not libdsc (%zd bytes came)", key.rank,
         got);
  crowded = wire.code == DSC_ERR_SYSTEM;
  if (crowded) return {};
  if (wire.code == DSC_ERR_PEER_LEFT) fail(DSC_ERR_PEER_LEFT, "rank %u has left the world", key.rank);
  if (wire.code != DSC_OK || !item)
    fail(DSC_ERR_PROTOCOL, "the endpoint of rank %u answers %d without a descriptor", key.rank, wire.code);
  return item;
}

UniqueFd attempt(const std::string& endpoint, const ItemKey& key, Deadline deadline,
                 const std::function<void()>& check, bool& crowded) {
  int error = 0;
  const UniqueFd connection = connect_abstract(endpoint, error);
  if (error == ECONNREFUSED)
    fail(DSC_ERR_PEER_DEAD, "the process of rank %u is gone: nobody listens at its endpoint %s", key.rank,
         endpoint.c_str());
  if (!connection) return {};
  check_owner(connection.get(), key);
  const RequestWire request = encode(key);
  send_message(connection.get(), &request, sizeof request);  // if it fails, receiving says why
  while (!wait_ready(connection.get(), POLLIN, {std::min(deadline.ns, Deadline::after_ms(kCheckMs).ns)})) {
    if (check) check();
    if (deadline.passed()) return {};
  }
  return take_reply(connection.get(), key, crowded);
}

}  // namespace

UniqueFd fetch(const std::string& endpoint, const ItemKey& key, Deadline deadline,
               const std::function<void()>& check) {
  const int64_t start_ns = now_ns();
  bool crowded = false;
  for (;;) {
    if (UniqueFd item = attempt(endpoint, key, deadline, check, crowded)) return item;
    if (check) check();
    if (deadline.passed() && crowded)
      fail(DSC_ERR_SYSTEM, "the process of rank %u is out of file descriptors and could not give one",
           key.rank);
    if (deadline.passed())
      fail(DSC_ERR_TIMEOUT, "rank %u did not give item %llu of kind %u within %lld ms", key.rank,
           static_cast<unsigned long long>(key.id), key.kind,
           static_cast<long long>((now_ns() - start_ns) / kNsPerMs));
    sleep_until({std::min(deadline.ns, Deadline::after_ms(kPauseMs).ns)});
  }
}

}  // namespace dsc
