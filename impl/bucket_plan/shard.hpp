// Which sample of a data set belongs to which rank: pure arithmetic, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dsc {

struct Sharding {
  size_t count;  // samples
  size_t shards;
  bool shuffle;
  uint64_t seed;   // of the shuffle
  bool drop_last;  // every shard gets count / shards samples, rounded down; else up, filled from the start
};

// Samples of every shard. Throws INVALID_ARG for a count or number of shards of 0, OVERFLOW when they are
// larger than any memory.
size_t shard_size(const Sharding& sharding);

// Throws INVALID_ARG unless `shard` is one of the shards.
void check_shard(const Sharding& sharding, size_t shard);

// Writes the samples of one shard: those at position `shard`, `shard` + shards, ... of the sequence.
// `indices` has shard_size() entries.
void shard_indices(const Sharding& sharding, size_t shard, std::span<size_t> indices);

}  // namespace dsc
