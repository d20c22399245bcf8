// Computes which elements a shard takes from the shards of another layout. This is used to read a checkpoint
// that a different number of ranks has written. It is pure arithmetic; no tensor data is accessed.
#pragma once

#include <span>
#include <vector>

#include "bucket_plan/shard_layout.hpp"

namespace dsc {

// The part of a parameter that is in a shard. `param_start` is an element of the parameter, and `shard_start`
// is an element of the bucket's shard.
struct ShardRange {
  size_t param;
  size_t param_start;
  size_t bucket;
  size_t shard_start;
  size_t count;
};

// Returns the parts of parameters that a shard holds, ordered by bucket and then by offset.
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

// Returns the copies that fill shard `shard` of layout `to` from the shards of layout `from`. Both are
// layouts of the same tensors. Padding is not copied.
std::vector<ShardCopy> shard_copies(std::span<const ShardTensor> tensors, const ShardLayout& from,
                                    const ShardLayout& to, size_t shard);

}  // namespace dsc
