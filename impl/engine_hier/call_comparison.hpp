// The comparison of calls before data moves: each leader gathers the calls of its host, the leaders compare
// them, and each tells the outcome to its host, so that all ranks fail alike.
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

  // All ranks of the group call this. Throws MISMATCH if their calls differ, PROTOCOL if what another host
  // sent is malformed, and what the host engine and the transport throw.
  void run(const CallSignature& own);

 private:
  // What a member sends to its leader.
  struct Row {
    CallSignature signature;
    std::byte part[kSmallBytes];
  };
  void gather_rows(const Row& own, std::span<Row> rows);
  CallDifference compare_hosts(std::span<const Row> rows, std::byte* result);
  CallDifference difference_of(std::span<const TransportGroup::Met> met) const;

  HierContext& context_;
  InlineData* const inline_data_;
  const Deadline deadline_;
};

}  // namespace dsc
