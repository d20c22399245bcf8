#include "sharded/flat_offsets.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr size_t kBucketAlignment = 128;  // two cache lines, because processors fetch them in pairs

size_t aligned(size_t bytes, size_t alignment) {
  const size_t result = (bytes + alignment - 1) / alignment * alignment;
  if (result < bytes) fail(DSC_ERR_OVERFLOW, "the flat buffers are larger than any memory");
  return result;
}

}  // namespace

FlatOffsets bucket_offsets(const ShardLayout& layout, std::span<const int32_t> dtypes, size_t divisor,
                           size_t unit_alignment) {
  FlatOffsets offsets;
  offsets.buckets.resize(layout.buckets.size());
  for (const auto& buckets : layout.units) {
    const size_t begin = offsets.bytes;
    for (const size_t b : buckets) {
      offsets.buckets[b] = offsets.bytes = aligned(offsets.bytes, kBucketAlignment);
      size_t bytes = 0;
      if (__builtin_mul_overflow(layout.buckets[b].size / divisor, dtype_bytes(dtypes[b]), &bytes) ||
          __builtin_add_overflow(offsets.bytes, bytes, &offsets.bytes))
        fail(DSC_ERR_OVERFLOW, "the flat buffers are larger than any memory");
    }
    offsets.bytes = aligned(offsets.bytes, unit_alignment);
    offsets.units.push_back({begin, offsets.bytes - begin});
  }
  return offsets;
}

size_t window_bytes(const FlatOffsets& offsets, size_t units) noexcept {
  size_t most = 0;
  size_t sum = 0;
  for (size_t u = 0; u < offsets.units.size(); ++u) {
    sum += offsets.units[u].bytes;
    if (u >= units) sum -= offsets.units[u - units].bytes;
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace dsc
