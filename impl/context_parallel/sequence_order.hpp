// Functions that tell which tokens of a sequence a rank holds, and which part of a causal attention it
// computes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/split_range.hpp"

namespace dsc {

// A sequence that `ranks` ranks divide. With a zig-zag it has 2 * ranks chunks, and rank r holds chunk r and
// chunk 2 * ranks - 1 - r. Otherwise it has one chunk per rank. Chunks are those of split_range().
struct SequenceOrder {
  bool is_zigzag;
  size_t count;
  int ranks;

  // The second range is empty unless it is a zig-zag.
  std::array<Range, 2> held_by(int rank) const noexcept;
};

// What a rank computes with the keys of one other rank: which of its own queries with which of these keys, as
// positions in what each of the two holds. With `is_diagonal`, query i sees the keys up to i; otherwise it
// sees all of them.
struct CausalWork {
  Range queries;
  Range keys;
  bool is_diagonal;
};

CausalWork causal_work(const SequenceOrder& order, int rank, int source) noexcept;

}  // namespace dsc
