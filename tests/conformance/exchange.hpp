// Compares the calls of all ranks of an operation and moves its data.
#pragma once

#include <optional>
#include <vector>

#include "base/failure.hpp"
#include "comm/transfer.hpp"
#include "control/call.hpp"

namespace conformance {

struct RankCall {
  int rank;
  const dsc::Call* call;
  uint64_t sequence;
};

struct Outcome {
  std::optional<dsc::Failure> failure;  // the result for all ranks
  dsc::NonFinite found;                 // found in the inputs of all ranks
};

// Returns the size in bytes of the larger buffer of one rank.
size_t bytes_of(const dsc::Call& call, int rank, int size);

// Compares first, so that no output is written if calls differ. Never throws.
Outcome exchange(uint64_t group, int runner, const std::vector<RankCall>& calls);

}  // namespace conformance
