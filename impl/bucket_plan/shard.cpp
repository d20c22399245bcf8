#include "bucket_plan/shard.hpp"

#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/split_mix.hpp"

namespace dsc {
namespace {

// Random numbers for a shuffle. They depend only on the seed.
class Shuffler {
 public:
  explicit Shuffler(uint64_t seed) noexcept : random_(seed) {}

  // Returns a uniform random number from 0 to bound - 1. Lemire's method almost never needs a division.
  uint64_t below(uint64_t bound) noexcept {
    auto product = widened(random_.next(), bound);
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = -bound % bound;
      while (static_cast<uint64_t>(product) < threshold) product = widened(random_.next(), bound);
    }
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  __extension__ using Wide = unsigned __int128;
  static Wide widened(uint64_t a, uint64_t b) noexcept { return static_cast<Wide>(a) * b; }

  SplitMix64 random_;
};

std::vector<size_t> shuffled(size_t count, uint64_t seed) {
  std::vector<size_t> samples(count);
  std::iota(samples.begin(), samples.end(), size_t{0});
  Shuffler random(seed);
  for (size_t last = count - 1; last > 0; --last) std::swap(samples[last], samples[random.below(last + 1)]);
  return samples;
}

}  // namespace

size_t shard_size(const Sharding& sharding) {
  const auto [count, shards, shuffle, seed, drop_last] = sharding;
  if (count == 0) fail(DSC_ERR_INVALID_ARG, "0 samples, expected 1 or more");
  if (shards == 0) fail(DSC_ERR_INVALID_ARG, "0 shards, expected 1 or more");
  constexpr size_t kMost = std::numeric_limits<ptrdiff_t>::max() / sizeof(size_t);
  if (count > kMost || shards > kMost) {
    fail(DSC_ERR_OVERFLOW, "%zu samples in %zu shards, expected at most %zu of each", count, shards, kMost);
  }
  return drop_last ? count / shards : (count - 1) / shards + 1;
}

void check_shard(const Sharding& sharding, size_t shard) {
  if (shard >= sharding.shards) {
    fail(DSC_ERR_INVALID_ARG, "shard %zu, expected 0 to %zu", shard, sharding.shards - 1);
  }
}

void shard_indices(const Sharding& sharding, size_t shard, std::span<size_t> indices) {
  const size_t size = shard_size(sharding);
  check_shard(sharding, shard);
  if (indices.size() < size) {
    fail(DSC_ERR_INVALID_ARG, "capacity is %zu, expected at least %zu, the samples of the shard",
         indices.size(), size);
  }
  std::vector<size_t> sequence;
  if (sharding.shuffle) sequence = shuffled(sharding.count, sharding.seed);
  for (size_t i = 0; i < size; ++i) {
    const size_t sample =
        (i * sharding.shards + shard) % sharding.count;  // positions after the end wrap around to the start
    indices[i] = sharding.shuffle ? sequence[sample] : sample;
  }
}

}  // namespace dsc
