#include "bucket_plan/shard_copies.hpp"

#include <algorithm>
#include <tuple>

namespace dsc {

std::vector<ShardRange> shard_ranges(std::span<const ShardTensor> tensors, const ShardLayout& layout,
                                     size_t shard) {
  std::vector<ShardRange> ranges;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [bucket, start] = layout.locations[i];
    const size_t size = layout.shard_size(bucket);
    const size_t first = std::max(start, shard * size);
    const size_t end = std::min(start + tensors[i].count, (shard + 1) * size);
    if (first < end) ranges.push_back({i, first - start, bucket, first - shard * size, end - first});
  }
  std::ranges::sort(ranges, {}, [](const ShardRange& r) { return std::tuple(r.bucket, r.shard_start); });
  return ranges;
}

std::vector<ShardCopy> shard_copies(std::span<const ShardTensor> tensors, const ShardLayout& from,
                                    const ShardLayout& to, size_t shard) {
  std::vector<ShardCopy> copies;
  for (const ShardRange& range : shard_ranges(tensors, to, shard)) {
    const auto [bucket, start] = from.locations[range.param];
    const size_t size = from.shard_size(bucket);
    for (size_t done = 0; done < range.count;) {
      const size_t at = start + range.param_start + done;  // position in the bucket of the source layout
      const size_t count = std::min(range.count - done, size - at % size);
      copies.push_back(
          {range.param, at / size, bucket, at % size, range.bucket, range.shard_start + done, count});
      done += count;
    }
  }
  return copies;
}

}  // namespace dsc
