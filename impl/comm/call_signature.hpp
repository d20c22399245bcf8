// Signatures of calls, which ranks compare before data moves because the calls must be equal on all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/call.hpp"
#include "control/layout.hpp"

namespace dsc {

struct CallSignature {
  uint64_t fingerprint;
  CallFields fields;
  char note[40];
};

CallSignature signature_of(const Call& call, uint64_t group, uint64_t sequence);
// The two ends of a message have equal fingerprints if they fit together.
CallSignature signature_of_message(const Call& call, uint64_t group, uint64_t sequence);

struct CallDifference {
  std::string text;  // "ranks called different operations: ranks 0, 1: all_reduce(sum, f32, 3); ..."
  std::vector<int32_t> ranks;  // the ranks at fault, in order
};

// Returns a difference as the failure of the operation.
Failure failure_of(const CallDifference& found) noexcept;

// Returns how calls differ, with an empty text if they are equal. all[i] is the call of ranks[i].
CallDifference difference(const std::vector<CallSignature>& all,
                          const std::vector<std::vector<int32_t>>& ranks);

struct MessageEnd {
  int32_t rank;
  CallFields fields;  // whose root is the other end's rank
};

// Describes two ends of a message whose calls differ; both are at fault.
CallDifference difference_of_ends(const MessageEnd& one, const MessageEnd& other);

}  // namespace dsc
