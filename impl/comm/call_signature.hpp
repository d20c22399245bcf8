// What ranks show each other of a call before its data moves, since it must be the same for all.
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

CallSignature signature_of(const Call& call, uint64_t group, uint64_t number);

struct CallDifference {
  std::string text;  // "ranks called different operations: ranks 0, 1: all_reduce(sum, f32, 3); ..."
  std::vector<int32_t> ranks;  // at fault, in order
};

// What differs between calls; empty if nothing does. all[i] is what ranks[i] called.
CallDifference difference(const std::vector<CallSignature>& all,
                          const std::vector<std::vector<int32_t>>& ranks);

}  // namespace dsc
