// What a leader tells the ranks of its host about a step that it took for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>

#include "base/clock.hpp"
#include "control/call.hpp"
#include "engine_host/host_engine.hpp"

namespace dsc {

// Where hosts have several ranks, up to this many bytes of all ranks together, or of the result of a
// reduction, are inline data. Otherwise a 4-byte all-reduce on 2 x 2 ranks would make four collectives on
// each host instead of two.
inline constexpr size_t kSmallBytes = 1024;

// The result of inline data, or why the step failed. The leader broadcasts it as it is in memory.
struct HostOutcome {
  void fail(dsc_result_t why, const char* words, std::span<const int32_t> at_fault = {}) noexcept {
    code = why;
    n_ranks = static_cast<int32_t>(std::min(at_fault.size(), std::size(ranks)));
    std::copy_n(at_fault.begin(), n_ranks, ranks);
    std::snprintf(text, sizeof text, "%s", words);
  }
  // Collective on the host: all ranks receive the leader's outcome, and throw it if it is a failure. Also
  // throws what the host engine throws.
  void tell_members(HostEngine& local, Deadline deadline);

  int32_t code = DSC_OK;
  int32_t n_ranks = 0;
  int32_t ranks[16] = {};  // the ranks at fault, as many as fit
  union {
    std::byte result[kSmallBytes] = {};
    char text[kSmallBytes];
  };
};

// Runs a collective of the host after all ranks of the group have made the call to which it belongs. A rank
// that is late by now waits for another host: this waits somewhat longer than the deadline, so that the
// leader of that rank reports it first.
void run_on_host(HostEngine& local, Call call, Deadline deadline);

}  // namespace dsc
