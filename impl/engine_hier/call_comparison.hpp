// Compares the calls of all ranks before data moves. Each leader gathers the calls of its host, the leaders
// compare them, and each leader sends the outcome to its host, so that all ranks fail in the same way.
#pragma once

#include <cstddef>
#include <span>

#include "base/clock.hpp"
#include "comm/call_signature.hpp"
#include "engine_hier/hier_context.hpp"
#include "engine_hier/host_outcome.hpp"
#include "engine_hier/inline_data.hpp"
#include "transport/transport_group.hpp"

namespace dsc {

// Compares one call, on the thread of the communicator's collectives.
class CallComparison {
 public:
  // `inline_data` is null if the data of the call does not travel with the comparison.
  CallComparison(HierContext& context, InlineData* inline_data, Deadline deadline) noexcept
      : context_(context), inline_data_(inline_data), deadline_(deadline) {}

  // All ranks of the group call this. Throws MISMATCH if the calls differ, PROTOCOL if another host sent
  // malformed data, and the errors of the host engine and the transport.
  //
  // Returns the deadline for the rest of the operation. On a leader, this is the earliest deadline of the
  // ranks of its host: each rank's time-out starts when it calls, and a leader that calls late must not make
  // earlier ranks wait longer.
  Deadline run(const CallSignature& own, uint64_t sequence);

 private:
  // What a member sends to its leader.
  struct Row {
    CallSignature signature;
    int64_t deadline_ns;  // on the clock that all processes of a host share
    std::byte part[kSmallBytes];
  };
  static_assert(sizeof(Row) <= Group::kMostSmallBytes && sizeof(HostOutcome) <= Group::kMostSmallBytes);
  void gather_rows(const Row& own, std::span<Row> rows, uint64_t sequence);
  CallDifference compare_hosts(std::span<const Row> rows, std::byte* result);
  CallDifference difference_of(std::span<const TransportGroup::Header> headers) const;

  HierContext& context_;
  InlineData* const inline_data_;
  Deadline deadline_;
};

}  // namespace dsc
