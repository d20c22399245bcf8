// Assignment of the samples of a data set to ranks. This is pure arithmetic with the same result on every
// machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dsc {

// Describes how samples are divided.
struct Sharding {
  size_t count;  // samples
  size_t shards;
  bool shuffle;
  uint64_t seed;  // seed of the shuffle
  // true: each shard gets count / shards samples, rounded down; false: rounded up, with samples from the
  // start repeated
  bool drop_last;
};

// Returns the number of samples of every shard. Throws INVALID_ARG if the count or the number of shards is 0,
// OVERFLOW if they exceed any memory.
size_t shard_size(const Sharding& sharding);

// Throws INVALID_ARG if `shard` is not below the number of shards.
void check_shard(const Sharding& sharding, size_t shard);

// Writes the samples of one shard, which are at positions `shard`, `shard` + shards, ... of the sequence.
// `indices` must have shard_size() entries.
void shard_indices(const Sharding& sharding, size_t shard, std::span<size_t> indices);

}  // namespace dsc
