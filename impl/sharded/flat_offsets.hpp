// Computes the offsets of all buckets, or of one rank's shards, in a block of memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bucket_plan/shard_layout.hpp"

namespace dsc {

struct FlatOffsets {
  struct Unit {
    size_t offset;  // in bytes, a multiple of the alignment of units
    size_t bytes;   // size, a multiple of the same alignment as the offset
  };
  std::vector<size_t> buckets;  // offset of each bucket from the start of the block, in bytes
  std::vector<Unit> units;
  size_t bytes = 0;
};

// `dtypes` are the element types of the buckets. Each bucket takes size / divisor elements. Throws OVERFLOW
// if the result exceeds the range of size_t.
FlatOffsets bucket_offsets(const ShardLayout& layout, std::span<const int32_t> dtypes, size_t divisor,
                           size_t unit_alignment);

// Returns the largest total size of `units` consecutive units, in bytes.
size_t window_bytes(const FlatOffsets& offsets, size_t units) noexcept;

}  // namespace dsc
