// Flat layouts of parameters. Their buckets are divided equally among shards. This is pure arithmetic; no
// tensor data is accessed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dsc {

struct ShardTensor {
  size_t count;
  int32_t dtype;
  // True if the tensor gets a bucket (or planned unit) for itself, as shared embeddings do.
  bool alone = false;
};

struct ShardRules {
  int32_t layout = 0;  // dsc_shard_layout_t
  size_t shards = 1;
  size_t alignment = 1;                 // in the unit layout, alignment of shards in elements
  size_t bucket_elements = 0;           // closes a planned bucket or unit; 0 means never
  bool wide_padding = false;            // in Megatron's layout, bucket ends are multiples of 65,536
  std::span<const size_t> unit_starts;  // first parameter of each unit; if empty, units are planned
};

// A flat buffer of one element type. Shard r consists of the elements r * size / shards to (r + 1) * size /
// shards - 1.
struct ShardBucket {
  size_t unit;
  size_t used;  // number of elements without the padding at the end
  size_t size;  // number of elements, a multiple of the number of shards
  int32_t dtype;
};

struct ShardLocation {
  size_t bucket;
  size_t start;  // first element in the bucket
};

struct ShardLayout {
  size_t shards = 1;
  std::vector<ShardBucket> buckets;
  std::vector<ShardLocation> locations;    // location of each parameter
  std::vector<std::vector<size_t>> units;  // buckets of each unit, in the order of first use

  size_t shard_size(size_t bucket) const { return buckets[bucket].size / shards; }
};

// Throws INVALID_ARG for invalid rules, and OVERFLOW if a bucket is larger than any memory.
ShardLayout make_shard_layout(std::span<const ShardTensor> tensors, const ShardRules& rules);

}  // namespace dsc
