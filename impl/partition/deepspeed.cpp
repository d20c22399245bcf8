// DeepSpeed's rules. The functions ending in _v0 follow v0.9.5, and the others follow commit edaa722
// (deepspeed/runtime/utils.py).
#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "partition/partition.hpp"

namespace dsc {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = 1e-3;  // precision of the old search, in the unit of weights

Boundaries one_each(size_t layers, size_t parts) {
  Boundaries result(parts + 1);
  for (size_t p = 0; p <= parts; ++p) result[p] = std::min(p, layers);
  return result;
}

// The weights of the heaviest and the lightest part in the chosen partition of the first i layers.
struct Range {
  double most = kUnbounded;
  double least = kUnbounded;
};

// Computes the chosen partitions with one more part. `before` describes partitions of the first i layers into
// `part` parts.
std::vector<Range> next_ranges(const std::vector<double>& sums, const std::vector<Range>& before, size_t part,
                               uint32_t* from) {
  std::vector<Range> after(sums.size());
  for (size_t i = part + 1; i < sums.size(); ++i) {
    double best = kUnbounded;
    for (size_t k = part; k < i; ++k) {
      const double last = sums[i] - sums[k];
      const Range range{std::max(before[k].most, last), std::min(before[k].least, last)};
      const double cost = range.most - range.least;
      if (cost > best) continue;
      best = cost;
      after[i] = range;
      from[i] = static_cast<uint32_t>(k);
    }
  }
  return after;
}

// The weights for the old search, as prefix sums. Each sum includes its own layer.
struct OldSums {
  std::vector<double> upto;
  size_t parts;

  size_t layers() const { return upto.size(); }
  double total() const { return upto.back(); }
  // In the original code, an index of -1 selects the last entry.
  double before(size_t layer) const { return layer == 0 ? total() : upto[layer - 1]; }
};

// Fills each part up to the bottleneck. Returns true if all layers fit.
bool probe(const OldSums& sums, double bottleneck, Boundaries& result) {
  const size_t n = sums.layers();
  result.assign(sums.parts + 1, n);
  result[0] = 0;
  const size_t chunk = n / sums.parts;
  size_t step = chunk;
  double target = bottleneck;
  for (size_t p = 1; p < sums.parts; ++p) {
    while (step < n && sums.upto[step] < target) step += chunk;
    const auto begin = sums.upto.begin();
    const auto end = begin + static_cast<ptrdiff_t>(std::min(step, n));
    result[p] = static_cast<size_t>(
        std::lower_bound(begin + static_cast<ptrdiff_t>(step - chunk), end, target) - begin);
    if (result[p] == n) return sums.total() - sums.upto[result[p - 1]] < bottleneck;
    target = sums.before(result[p]) + bottleneck;
  }
  return target >= sums.total();
}

double find_bottleneck(const OldSums& sums) {
  Boundaries unused;
  double lower = sums.total() / static_cast<double>(sums.parts);
  double upper = sums.total();
  while (upper > lower + kEpsilon) {
    const double middle = lower + (upper - lower) / 2;
    const bool fits = probe(sums, middle, unused);
    // Stop here. The original code would loop forever if the step is below the precision of the numbers.
    if (!fits && middle + kEpsilon <= lower) break;
    if (fits && middle >= upper) break;
    (fits ? upper : lower) = fits ? middle : middle + kEpsilon;
  }
  return upper;
}

}  // namespace

Boundaries partition_uniform(size_t layers, size_t parts) {
  if (layers <= parts) return one_each(layers, parts);
  const size_t each = layers / parts;
  const size_t rest = layers % parts;
  Boundaries result(parts + 1);
  for (size_t p = 0; p <= parts; ++p) result[p] = p * each + std::min(p, rest);
  return result;
}

Boundaries partition_uniform_v0(size_t layers, size_t parts) {
  if (layers <= parts) return one_each(layers, parts);
  Boundaries result(parts + 1, layers);
  for (size_t p = 0; p < parts; ++p) result[p] = p * (layers / parts);
  return result;
}

// Minimizes the difference between the heaviest and the lightest part by dynamic programming.
Boundaries partition_balanced(std::span<const double> weights, size_t parts) {
  const size_t n = weights.size();
  if (n <= parts) return partition_uniform(n, parts);
  std::vector<double> sums(n + 1, 0.0);
  for (size_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + weights[i];
  std::vector<uint32_t> from((n + 1) * parts);
  std::vector<Range> ranges(n + 1);
  ranges[0].most = 0;
  for (size_t part = 0; part < parts; ++part)
    ranges = next_ranges(sums, ranges, part, from.data() + part * (n + 1));
  Boundaries result(parts + 1, n);
  for (size_t part = parts; part > 0; --part) result[part - 1] = from[(part - 1) * (n + 1) + result[part]];
  return result;
}

Boundaries partition_balanced_v0(std::span<const double> weights, size_t parts) {
  const size_t n = weights.size();
  if (n <= parts) return partition_uniform_v0(n, parts);
  OldSums sums{{weights.begin(), weights.end()}, parts};
  for (size_t i = 1; i < n; ++i) sums.upto[i] += sums.upto[i - 1];
  Boundaries result;
  if (!probe(sums, find_bottleneck(sums), result))
    fail(DSC_ERR_INVALID_ARG,
         "'deepspeed_balanced_v0' finds no partition of these weights; DeepSpeed finds none either");
  return result;
}

}  // namespace dsc
