// Flat layouts of parameters whose buckets are divided equally among shards. This is pure arithmetic that
// touches no tensor data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dsc {

struct ShardTensor {
  size_t count;
  int32_t dtype;
  bool alone = false;  // gets its own bucket (or planned unit), as shared embeddings do
};

struct ShardRules {
  int32_t layout = 0;  // dsc_shard_layout_t
  size_t shards = 1;
  size_t alignment = 1;                 // unit layout: of the shards, in elements
  size_t bucket_elements = 0;           // closes a planned bucket or unit; 0: it is never full
  bool wide_padding = false;            // Megatron's layout: bucket ends are also multiples of 65,536
  std::span<const size_t> unit_starts;  // first parameter of each unit; empty: units are planned
  const char* given_as = "options";     // name of the caller's argument in messages
};

// A flat buffer of one element type. Shard r is elements r * size / shards to (r + 1) * size / shards - 1.
struct ShardBucket {
  size_t unit;
  size_t used;  // elements without the padding at the end
  size_t size;  // elements, a multiple of the number of shards
  int32_t dtype;
};

struct ShardLocation {
  size_t bucket;
  size_t start;  // element of its bucket
};

struct ShardLayout {
  size_t shards = 1;
  std::vector<ShardBucket> buckets;
  std::vector<ShardLocation> locations;    // of each parameter
  std::vector<std::vector<size_t>> units;  // buckets of each unit; units are in the order of first use

  size_t shard_size(size_t bucket) const { return buckets[bucket].size / shards; }
};

// Throws INVALID_ARG for rules that cannot be followed, OVERFLOW if a bucket is larger than any memory.
ShardLayout make_shard_layout(std::span<const ShardTensor> tensors, const ShardRules& rules);

}  // namespace dsc
