// Assigns the samples of a data set to ranks. This is pure arithmetic with the same result on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dsc {

// Describes how samples are divided.
struct Sharding {
  size_t count;  // number of samples
  size_t shards;
  bool shuffle;
  uint64_t seed;  // seed of the shuffle
  // If true, each shard gets count / shards samples, rounded down. If false, the number is rounded up, and
  // samples from the start are repeated.
  bool drop_last;
};

// Returns the number of samples in each shard. Throws INVALID_ARG if the count or the number of shards is 0,
// and OVERFLOW if one of them is larger than any memory.
size_t shard_size(const Sharding& sharding);

// Throws INVALID_ARG unless `shard` is below the number of shards.
void check_shard(const Sharding& sharding, size_t shard);

// Writes the indices of the samples of one shard. They are at the positions `shard`, `shard` + shards,
// `shard` + 2 * shards and so on of the sequence. `indices` must have shard_size() entries.
void shard_indices(const Sharding& sharding, size_t shard, std::span<size_t> indices);

}  // namespace dsc
