#include "compress/topk.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#ifndef HWY_TARGET_INCLUDE  // kernels.cpp defines this macro and includes this file
#define HWY_TARGET_INCLUDE "compress/topk.cpp"
#endif
#include "hwy/foreach_target.h"
// This header must be included after foreach_target.h.
#include "compress/vectors-inl.hpp"

#ifndef DSC_COMPRESS_TOPK_ONCE
#define DSC_COMPRESS_TOPK_ONCE
namespace dsc {
namespace {

// The key of a float is its bits without the sign, so keys are ordered like magnitudes. All NaNs have the
// same key, which is one above the key of infinity.
constexpr uint32_t kNanKey = 0x7f800001;

uint32_t key_of(float value) { return std::min(std::bit_cast<uint32_t>(value) & 0x7fffffff, kNanKey); }

// Counts keys by one digit, which is key >> shift & mask. All keys that are counted have the same bits above
// this digit.
struct CountKeys {
  uint32_t* counts;
  int shift;
  uint32_t mask;

  bool operator()(uint32_t key, size_t /*index*/) {
    ++counts[key >> shift & mask];
    return true;
  }
};

// Writes the indices of keys that are at least the threshold to `free`, until that is full. At most `equal`
// keys may equal the threshold.
struct TakeIndices {
  uint32_t threshold;
  size_t equal;  // how many keys equal to the threshold may still be taken
  std::span<uint32_t> free;

  // Returns false once `free` is full.
  bool operator()(uint32_t key, size_t index) {
    if (key == threshold) {
      if (equal == 0) return true;
      --equal;
    }
    free.front() = static_cast<uint32_t>(index);
    free = free.subspan(1);
    return !free.empty();
  }
};

}  // namespace
}  // namespace dsc
#endif

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// Returns, as 64 bits, which of 64 elements have a key from `low` to `high`. `high` must be below 2^31 - 1,
// because integer vectors have no comparison for greater or equal.
HWY_INLINE uint64_t find_keys(const float* values, uint32_t low, uint32_t high) {
  const I32 i;
  const auto below = hn::Set(i, static_cast<int32_t>(low) - 1),
             above = hn::Set(i, static_cast<int32_t>(high) + 1);
  uint64_t found = 0;
#pragma GCC unroll 16
  for (size_t j = 0; j < 64; j += kF32Lanes) {
    const auto bits = hn::BitCast(i, hn::LoadU(F32(), values + j));
    const auto magnitude = hn::And(bits, hn::Set(i, 0x7fffffff));
    const auto key = hn::Min(magnitude, hn::Set(i, static_cast<int32_t>(kNanKey)));
    found |= bits_of(i, hn::And(key > below, key < above)) << j;
  }
  return found;
}

// Passes the keys from `low` to `high` to the visitor, until the visitor returns false.
template <class Visitor>
HWY_INLINE void visit_keys(std::span<const float> values, uint32_t low, uint32_t high, Visitor& visit) {
  const size_t count = values.size();
  for (size_t at = 0; at < count; at += 64) {
    uint64_t found = 0;
    if (count - at >= 64) {
      found = find_keys(values.data() + at, low, high);
    } else {
      float rest[64] = {};
      std::memcpy(rest, values.data() + at, (count - at) * sizeof(float));
      found = find_keys(rest, low, high) & ((uint64_t{1} << (count - at)) - 1);
    }
    for (; found != 0; found &= found - 1) {
      const size_t index = at + static_cast<size_t>(std::countr_zero(found));
      if (!visit(key_of(values[index]), index)) return;
    }
  }
}

void count_keys(std::span<const float> values, uint32_t low, uint32_t high, CountKeys visit) {
  visit_keys(values, low, high, visit);
}
// Returns how many indices were taken.
size_t take_indices(std::span<const float> values, TakeIndices visit) {
  const size_t room = visit.free.size();
  visit_keys(values, visit.threshold, kNanKey, visit);
  return room - visit.free.size();
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(count_keys);
HWY_EXPORT(take_indices);

namespace {

constexpr int kHighBits = 11, kLowBits = 10;  // the 31 bits of a key: one high digit and two low digits

// Counts the keys by their high digit. Four tables are used in turn, because incrementing the same counter
// twice in a row is slower.
void count_high(std::span<const float> values, uint32_t (&counts)[1 << kHighBits]) {
  uint32_t tables[3][1 << kHighBits] = {};
  size_t at = 0;
  for (; values.size() - at >= 4; at += 4) {
    ++counts[key_of(values[at]) >> (2 * kLowBits)];
    for (size_t t = 0; t < 3; ++t) ++tables[t][key_of(values[at + t + 1]) >> (2 * kLowBits)];
  }
  for (; at < values.size(); ++at) ++counts[key_of(values[at]) >> (2 * kLowBits)];
  for (size_t digit = 0; digit < std::size(counts); ++digit)
    for (const auto& table : tables) counts[digit] += table[digit];
}

// Returns the digit of the wanted-th largest key. Subtracts from `wanted` the number of keys with larger
// digits.
uint32_t find_digit(std::span<const uint32_t> counts, size_t& wanted) {
  auto digit = static_cast<uint32_t>(counts.size() - 1);
  while (counts[digit] < wanted) wanted -= counts[digit--];
  return digit;
}

// Selects the elements by reading all values four times.
void select_exactly(std::span<const float> values, std::span<uint32_t> indices) {
  uint32_t counts[1 << kHighBits] = {};
  count_high(values, counts);
  size_t wanted = indices.size();
  uint32_t threshold = find_digit(counts, wanted) << (2 * kLowBits);
  for (int shift = kLowBits; shift >= 0; shift -= kLowBits) {
    constexpr uint32_t kMask = (1u << kLowBits) - 1;
    const auto low_counts = std::span(counts).first(1 << kLowBits);
    std::ranges::fill(low_counts, 0u);
    const uint32_t last = threshold | ((1u << (shift + kLowBits)) - 1);
    HWY_DYNAMIC_DISPATCH(count_keys)(values, threshold, last, {counts, shift, kMask});
    threshold |= find_digit(low_counts, wanted) << shift;
  }
  HWY_DYNAMIC_DISPATCH(take_indices)(values, {threshold, wanted, indices});
}

constexpr size_t kSamples = 4096;
constexpr size_t kManyValues = 16 * kSamples;  // from this size on, sampling is worth its cost

// Selects among the values above a guessed threshold. The guess is made from samples, so that about twice as
// many values as wanted are expected above it. If too few values are above it, or more than fit, selects
// nothing and returns false.
bool select_among_large(std::span<const float> values, std::span<uint32_t> indices) {
  const size_t step = values.size() / kSamples;
  uint32_t samples[kSamples];
  for (size_t i = 0; i < kSamples; ++i) samples[i] = key_of(values[i * step]);
  const size_t rank = 2 * indices.size() / step + 16;
  if (rank >= kSamples / 4) return false;
  std::ranges::nth_element(samples, samples + rank, std::greater());
  std::vector<uint32_t> candidates(2 * rank * step);
  const TakeIndices all{samples[rank], values.size(), candidates};
  candidates.resize(HWY_DYNAMIC_DISPATCH(take_indices)(values, all));
  if (candidates.size() < indices.size() || candidates.size() == all.free.size()) return false;
  std::vector<float> large(candidates.size());
  std::ranges::transform(candidates, large.begin(), [&](uint32_t index) { return values[index]; });
  select_exactly(large, indices);
  for (uint32_t& index : indices) index = candidates[index];
  return true;
}

}  // namespace

void select_top_k(std::span<const float> values, std::span<uint32_t> indices) {
  if (indices.size() == values.size()) return std::iota(indices.begin(), indices.end(), 0u);
  if (indices.empty()) return;
  if (values.size() >= kManyValues && select_among_large(values, indices)) return;
  select_exactly(values, indices);
}

}  // namespace dsc
#endif
