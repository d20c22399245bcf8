// What an operation moves, as rectangles of the buffers of two ranks.
#pragma once

#include <cstddef>

#include "harness.hpp"

namespace bench {

// Rows of elements. A rectangle of one row is contiguous.
struct Block {
  size_t rows = 0, width = 0;  // no rows: nothing is moved
  size_t from_offset = 0, from_stride = 0;
  size_t to_offset = 0, to_stride = 0;
};

// Returns whether every output is a sum of the same block of all ranks.
bool is_sum(Op op);

// Returns whether the operation has to move data out of this rank's input.
bool sends(Op op, int rank);

// Returns what moves from the input of one rank to the output of another one, or of the same one. For a sum,
// this is the block of each source that belongs to the output `to`.
Block block_between(const Call& call, int from, int to);

}  // namespace bench
