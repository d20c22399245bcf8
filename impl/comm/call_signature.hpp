// Signatures of calls. Calls must be equal on all ranks, so ranks compare their signatures before data moves.
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
// Returns the signature of a send or receive. The signatures of a send and its matching receive have the same
// fingerprint.
CallSignature signature_of_message(const Call& call, uint64_t group, uint64_t sequence);

struct CallDifference {
  std::string text;  // such as "ranks called different operations: ranks 0, 1: all_reduce(sum, f32, 3); ..."
  std::vector<int32_t> ranks;  // ranks whose call is wrong, in ascending order
};

// Converts a difference to the failure of the operation.
Failure failure_of(const CallDifference& found) noexcept;

// Returns how calls differ; the text is empty if they are equal. all[i] is the call of all ranks in ranks[i].
CallDifference difference(const std::vector<CallSignature>& all,
                          const std::vector<std::vector<int32_t>>& ranks);

struct MessageEnd {
  int32_t rank;
  CallFields fields;  // `root` is the rank at the other end
};

// Describes a send and a receive that do not match. Both ranks count as wrong.
CallDifference difference_of_ends(const MessageEnd& one, const MessageEnd& other);

}  // namespace dsc
