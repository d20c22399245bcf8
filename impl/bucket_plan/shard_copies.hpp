// Computes what a shard of one layout takes from the shards of another one, to read a checkpoint that was
// written by another number of ranks. This is pure arithmetic that touches no tensor data.
#pragma once

#include <span>
#include <vector>

#include "bucket_plan/shard_layout.hpp"

namespace dsc {

// A part of one parameter in one shard. Starts are elements of a shard of the bucket.
struct ShardRange {
  size_t param;
  size_t param_start;
  size_t bucket;
  size_t shard_start;
  size_t count;
};

// Returns the parts of parameters that a shard holds, in the order of buckets, then of offsets.
std::vector<ShardRange> shard_ranges(std::span<const ShardTensor> tensors, const ShardLayout& layout,
                                     size_t shard);

struct ShardCopy {
  size_t param;
  size_t from_shard;
  size_t from_bucket;
  size_t from_start;
  size_t to_bucket;
  size_t to_start;
  size_t count;
};

// Returns what shard `shard` of `to` takes from the shards of `from`, both layouts of the same tensors.
// Padding is not copied.
std::vector<ShardCopy> shard_copies(std::span<const ShardTensor> tensors, const ShardLayout& from,
                                    const ShardLayout& to, size_t shard);

}  // namespace dsc
