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

// Only finds causes; the caller fails the group. The functions throw only for lack of memory.
class LateCalls {
 public:
  explicit LateCalls(const NcclGroup& group) : group_(group) {}

  // Notes the latest call on the device that was not captured. Any thread.
  void note_launched(uint64_t sequence) noexcept { latest_call_.store(sequence); }
  // If all ranks are on one host, the end of operations on callers' streams is not tracked. This finds ranks
  // that have not made the call at all. Only the watch calls it.
  std::optional<CallFailure> find(int64_t now);

  // --- Any thread.
  // Returns a cause if the other end of a message has left without calling it.
  std::optional<CallFailure> find_departed(const Call& call, uint64_t sequence) const;
  CallFailure timed_out(const Call& call, uint64_t sequence, int64_t elapsed_ns) const;
  // Adds to a time-out which ranks are at fault: those that have not made the call or made another one. May
  // take seconds if the group has several hosts.
  void explain(const Call& call, Failure& cause) const;

 private:
  template <typename Late>
  std::optional<CallFailure> find_departed_among(const Call& call, uint64_t sequence,
                                                 const Late& late_ranks) const;
  std::vector<CallThere> ask_all(const Call& call, uint64_t sequence) const;

  const NcclGroup& group_;
  std::atomic<uint64_t> latest_call_{0};
  uint64_t awaited_call_ = 0;  // a call for which other ranks may be late, and since when
  int64_t awaited_since_ns_ = 0;
};

}  // namespace dsc
