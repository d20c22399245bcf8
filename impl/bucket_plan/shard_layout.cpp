#include "bucket_plan/shard_layout.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "dsc/types.h"

namespace dsc {
namespace {

constexpr size_t kMegatronStart = 64;       // Megatron aligns parameters to this many elements
constexpr size_t kMegatronEnd = 128;        // bucket ends are multiples of 128 and of the number of shards
constexpr size_t kMegatronWideEnd = 65536;  // used instead of kMegatronEnd if wide_padding is set
constexpr size_t kDeepSpeedEnd = 2;         // DeepSpeed aligns shards to this many elements
// Limit for elements of the largest type.
constexpr size_t kMostElements = std::numeric_limits<ptrdiff_t>::max() / 8;

[[noreturn]] void fail_too_large(size_t index) {
  fail(DSC_ERR_OVERFLOW, "the bucket of tensor %zu does not fit the address space", index);
}

size_t sum(size_t a, size_t b, size_t index) {
  size_t result = 0;
  if (__builtin_add_overflow(a, b, &result) || result > kMostElements) fail_too_large(index);
  return result;
}

size_t rounded_up(size_t elements, size_t to, size_t index) {
  return sum(elements, (to - elements % to) % to, index);
}

void check(std::span<const ShardTensor> tensors, const ShardRules& rules) {
  if (tensors.empty()) fail(DSC_ERR_INVALID_ARG, "there are no tensors, expected 1 or more");
  if (rules.shards < 1 || rules.shards > INT32_MAX)
    fail(DSC_ERR_INVALID_ARG, "shards is %zu, expected 1 to %d", rules.shards, INT32_MAX);
  if (rules.alignment < 1 || rules.alignment > INT32_MAX)
    fail(DSC_ERR_INVALID_ARG, "%s->alignment is %zu, expected 1 to %d", rules.given_as, rules.alignment,
         INT32_MAX);
  if (rules.layout < DSC_SHARD_LAYOUT_UNIT || rules.layout > DSC_SHARD_LAYOUT_PARTITIONED)
    fail(DSC_ERR_INVALID_ARG,
         "%s->layout is %d, expected 1 (unit), 2 (megatron), 3 (deepspeed) or 4 (partitioned)",
         rules.given_as, rules.layout);
}

void check_units(std::span<const ShardTensor> tensors, const ShardRules& rules) {
  if (rules.unit_starts.empty()) return;
  if (rules.layout == DSC_SHARD_LAYOUT_MEGATRON)
    fail(DSC_ERR_INVALID_ARG,
         "%s->unit_starts has %zu entries, expected none: the layout megatron plans its buckets itself",
         rules.given_as, rules.unit_starts.size());
  if (rules.unit_starts[0] != 0)
    fail(DSC_ERR_INVALID_ARG, "%s->unit_starts[0] is %zu, expected 0", rules.given_as, rules.unit_starts[0]);
  for (size_t u = 1; u < rules.unit_starts.size(); ++u) {
    const size_t before = rules.unit_starts[u - 1];
    if (rules.unit_starts[u] <= before || rules.unit_starts[u] >= tensors.size())
      fail(DSC_ERR_INVALID_ARG, "%s->unit_starts[%zu] is %zu, expected more than %zu and less than %zu",
           rules.given_as, u, rules.unit_starts[u], before, tensors.size());
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].alone)
      fail(DSC_ERR_INVALID_ARG, "%s->alone[%zu] is 1, expected 0: unit_starts defines the units",
           rules.given_as, i);
}

// Divides consecutive parameters into units. A unit is closed by the parameter that fills it.
std::vector<size_t> planned_units(std::span<const ShardTensor> tensors, size_t bucket_elements) {
  std::vector<size_t> starts{0};
  size_t elements = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool opens = i == starts.back();
    if (!opens &&
        (tensors[i].alone || tensors[i - 1].alone || (bucket_elements > 0 && elements >= bucket_elements))) {
      starts.push_back(i);
      elements = 0;
    }
    elements = sum(elements, tensors[i].count, i);
  }
  return starts;
}

// Builds a layout bucket by bucket.
class Builder {
 public:
  Builder(std::span<const ShardTensor> tensors, const ShardRules& rules) : tensors_(tensors), rules_(rules) {
    layout_.shards = rules.shards;
    layout_.locations.resize(tensors.size());
  }

  size_t open(size_t unit, int32_t dtype) {
    layout_.buckets.push_back({unit, 0, 0, dtype});
    return layout_.buckets.size() - 1;
  }

  // Appends a parameter at a multiple of `alignment` elements.
  void append(size_t bucket, size_t index, size_t alignment) {
    ShardBucket& to = layout_.buckets[bucket];
    const size_t start = rounded_up(to.used, alignment, index);
    layout_.locations[index] = {bucket, start};
    to.used = sum(start, tensors_[index].count, index);
    last_ = index;
  }

  void fill(size_t bucket, size_t multiple) {
    ShardBucket& filled = layout_.buckets[bucket];
    filled.used = rounded_up(filled.used, multiple, last_);
  }

  void close(size_t bucket, size_t multiple) {
    ShardBucket& closed = layout_.buckets[bucket];
    closed.size = rounded_up(closed.used, multiple, last_);
  }

  size_t used(size_t bucket) const { return layout_.buckets[bucket].used; }

  size_t multiple_of_shards(size_t factor) const {
    size_t result = 0;
    if (__builtin_mul_overflow(rules_.shards, factor, &result) || result > kMostElements) fail_too_large(0);
    return result;
  }

  ShardLayout finish(size_t units) {
    layout_.units.resize(units);
    for (size_t b = 0; b < layout_.buckets.size(); ++b) layout_.units[layout_.buckets[b].unit].push_back(b);
    return std::move(layout_);
  }

  // Completes a layout in which each bucket is a unit. Units are numbered in the order of their first
  // parameters.
  ShardLayout finish_by_bucket() {
    std::vector<size_t> first(layout_.buckets.size(), tensors_.size());
    for (size_t i = tensors_.size(); i-- > 0;) first[layout_.locations[i].bucket] = i;
    std::vector<size_t> order(first.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t b) { return first[b]; });
    for (size_t unit = 0; unit < order.size(); ++unit) layout_.buckets[order[unit]].unit = unit;
    return finish(order.size());
  }

 private:
  std::span<const ShardTensor> tensors_;
  const ShardRules& rules_;
  ShardLayout layout_;
  size_t last_ = 0;
};

// The layout of Megatron's distributed optimizer. Each element type has separate buckets. The type of the
// last parameter is first.
ShardLayout megatron_layout(std::span<const ShardTensor> tensors, const ShardRules& rules) {
  Builder builder(tensors, rules);
  const size_t end_of_two = rules.wide_padding ? kMegatronWideEnd : kMegatronEnd;
  const size_t end = builder.multiple_of_shards(end_of_two / std::gcd(rules.shards, end_of_two));
  constexpr size_t kNone = ~size_t{0};
  std::vector<int32_t> dtypes;
  for (size_t i = tensors.size(); i-- > 0;)
    if (std::ranges::find(dtypes, tensors[i].dtype) == dtypes.end()) dtypes.push_back(tensors[i].dtype);
  for (const int32_t dtype : dtypes) {
    size_t bucket = kNone;
    const auto close = [&] {
      if (bucket != kNone) builder.close(bucket, end);
      bucket = kNone;
    };
    for (size_t i = tensors.size(); i-- > 0;) {
      if (tensors[i].dtype != dtype) continue;
      // Megatron aligns the start of a parameter with `alone` before it closes the preceding bucket.
      if (tensors[i].alone && bucket != kNone) builder.fill(bucket, kMegatronStart);
      if (tensors[i].alone) close();
      if (bucket == kNone) bucket = builder.open(0, dtype);
      builder.append(bucket, i, kMegatronStart);
      const bool full = rules.bucket_elements > 0 && builder.used(bucket) >= rules.bucket_elements;
      if (full || tensors[i].alone) close();
    }
    close();
  }
  return builder.finish_by_bucket();
}

// A layout of units of consecutive parameters. Each unit has one bucket per element type.
ShardLayout flat_layout(std::span<const ShardTensor> tensors, const ShardRules& rules,
                        std::span<const size_t> starts) {
  Builder builder(tensors, rules);
  const size_t factor = rules.layout == DSC_SHARD_LAYOUT_DEEPSPEED ? kDeepSpeedEnd : rules.alignment;
  const size_t multiple = builder.multiple_of_shards(factor);
  for (size_t unit = 0; unit < starts.size(); ++unit) {
    const size_t end = unit + 1 < starts.size() ? starts[unit + 1] : tensors.size();
    std::map<int32_t, size_t> buckets;  // by element type
    std::vector<size_t> opened;
    for (size_t i = starts[unit]; i < end; ++i) {
      const auto [known, is_new] = buckets.try_emplace(tensors[i].dtype, 0);
      if (is_new) opened.push_back(known->second = builder.open(unit, tensors[i].dtype));
      builder.append(known->second, i, 1);
    }
    for (const size_t bucket : opened) builder.close(bucket, multiple);
  }
  return builder.finish(starts.size());
}

// The layout of DeepSpeed's reduce_scatter_coalesced. Each parameter is divided into equal parts; the last
// part may be shorter or empty.
ShardLayout partitioned_layout(std::span<const ShardTensor> tensors, const ShardRules& rules,
                               std::span<const size_t> starts) {
  Builder builder(tensors, rules);
  size_t unit = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (unit + 1 < starts.size() && i == starts[unit + 1]) ++unit;
    const size_t bucket = builder.open(unit, tensors[i].dtype);
    builder.append(bucket, i, 1);
    builder.close(bucket, rules.shards);
  }
  return builder.finish(starts.size());
}

}  // namespace

ShardLayout make_shard_layout(std::span<const ShardTensor> tensors, const ShardRules& rules) {
  check(tensors, rules);
  check_units(tensors, rules);
  if (rules.layout == DSC_SHARD_LAYOUT_MEGATRON) return megatron_layout(tensors, rules);
  const std::vector<size_t> starts =
      rules.unit_starts.empty() ? planned_units(tensors, rules.bucket_elements)
                                : std::vector<size_t>(rules.unit_starts.begin(), rules.unit_starts.end());
  return (rules.layout == DSC_SHARD_LAYOUT_PARTITIONED ? partitioned_layout : flat_layout)(tensors, rules,
                                                                                           starts);
}

}  // namespace dsc
