// The offsets of buckets, or of the shards of one rank, in a block of memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bucket_plan/shard_layout.hpp"

namespace dsc {

struct FlatOffsets {
  struct Unit {
    size_t offset;  // bytes, a multiple of the alignment of units
    size_t bytes;   // also a multiple of it
  };
  std::vector<size_t> buckets;  // bytes from the start of the block
  std::vector<Unit> units;
  size_t bytes = 0;
};

// `dtypes` are the element types of the buckets. Each bucket takes size / divisor elements. Throws OVERFLOW
// if that is larger than any memory.
FlatOffsets bucket_offsets(const ShardLayout& layout, std::span<const int32_t> dtypes, size_t divisor,
                           size_t unit_alignment);

// Returns the bytes of the largest `units` consecutive units.
size_t window_bytes(const FlatOffsets& offsets, size_t units) noexcept;

}  // namespace dsc
