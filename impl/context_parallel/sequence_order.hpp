// Computes which tokens of a sequence a rank holds, and which part of a causal attention it computes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/split_range.hpp"

namespace dsc {

// A sequence that is divided among `ranks` ranks. With a zigzag, it has 2 * ranks chunks, and rank r holds
// the chunks r and 2 * ranks - 1 - r. Otherwise it has one chunk per rank. split_range() defines the chunks.
struct SequenceOrder {
  bool is_zigzag;
  size_t count;
  int ranks;

  // Returns the tokens of a rank. The second range is empty unless the order is a zigzag.
  std::array<Range, 2> held_by(int rank) const noexcept;
};

// The part of the attention that a rank computes with the keys of one rank. Queries and keys are positions
// among the tokens that the two ranks hold. If `is_diagonal` is set, query i attends to the keys up to i;
// otherwise it attends to all of them.
struct CausalWork {
  Range queries;
  Range keys;
  bool is_diagonal;
};

CausalWork causal_work(const SequenceOrder& order, int rank, int source) noexcept;

}  // namespace dsc
