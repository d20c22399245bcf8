// The outcome of a step that a leader has run for the ranks of its host. The leader sends it to these ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/clock.hpp"
#include "comm/engine.hpp"
#include "control/call.hpp"

namespace dsc {

// If hosts have several ranks, data is inline up to this many bytes of all ranks together, or of the result
// of a reduction. Otherwise a 4-byte all-reduce on 2 x 2 ranks would take four collectives on each host
// instead of two.
inline constexpr size_t kSmallBytes = 1024;

// The result for inline data, or the failure of the step. The leader broadcasts this struct byte by byte.
struct HostOutcome {
  HostOutcome() noexcept : result{} {}
  void fail(const Failure& why) noexcept {
    failed = 1;
    std::construct_at(&failure, why);
  }
  // Collective on the host: all ranks receive the leader's outcome, and throw it if it is a failure. Also
  // throws what the host engine throws.
  void tell_members(GroupEngine& local, Deadline deadline);

  uint64_t failed = 0;  // 1: the step failed, and `failure` is valid
  union {
    std::byte result[kSmallBytes];
    Failure failure;
  };
};

// Runs a collective of the host after all ranks of the group have made the call to which it belongs. A member
// that is late at this point is waiting for another host. This collective times out somewhat after the
// deadline, so that the member's own time-out, which names that host, is reported first.
void run_on_host(GroupEngine& local, Call call, Deadline deadline);

}  // namespace dsc
