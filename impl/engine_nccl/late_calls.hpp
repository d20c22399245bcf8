// Finds the ranks that have not called an operation on devices, or have called another one.
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "engine_nccl/nccl_group.hpp"

namespace dsc {

// A failure of the group, and the call that revealed it.
struct CallFailure {
  Call call;
  Failure cause;  // its sequence is that of the call
};

// Finds causes only; the caller fails the group. The functions throw only if memory is short.
class LateCalls {
 public:
  explicit LateCalls(const NcclGroup& group) : group_(group) {}

  // Notes the latest call on the device that was not captured. Any thread may call this.
  void note_launched(uint64_t sequence) noexcept { latest_call_.store(sequence); }
  // Finds ranks of this host that have not made a call which this rank has put on a stream of the program. If
  // all ranks are on one host, the engine does not track when such operations end. Only DeviceWatch calls
  // this.
  std::optional<CallFailure> find(int64_t now);

  // --- Any thread may call these functions.
  // Returns a failure if the other end of a message has left without making its call.
  std::optional<CallFailure> find_departed(const Call& call, uint64_t sequence) const;
  CallFailure timed_out(const Call& call, uint64_t sequence, int64_t elapsed_ns) const;
  // Adds to a time-out which ranks have not made the call, or made another call. May take seconds if the
  // group has several hosts.
  void explain(const Call& call, Failure& cause) const;

 private:
  template <typename Late>
  std::optional<CallFailure> find_departed_among(const Call& call, uint64_t sequence,
                                                 const Late& late_ranks) const;
  std::vector<CallThere> ask_all(const Call& call, uint64_t sequence) const;

  const NcclGroup& group_;
  std::atomic<uint64_t> latest_call_{0};
  uint64_t awaited_call_ = 0;  // a call that other ranks may not have made yet
  int64_t awaited_since_ns_ = 0;
};

}  // namespace dsc
