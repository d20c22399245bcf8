#include "dscctl/bench/fit.hpp"

#include <algorithm>
#include <cmath>

namespace dscctl::bench {
namespace {

// Sums for the least squares over a = 1 / us and b = bytes / us. For a perfect fit, latency_us * a +
// us_per_byte * b is 1 for every measurement.
struct Sums {
  double aa = 0, ab = 0, bb = 0, a = 0, b = 0;
};

Sums sums_of(const std::vector<Measured>& measured) {
  Sums sums;
  for (const Measured& it : measured) {
    const double a = 1 / it.us, b = it.bytes / it.us;
    sums.aa += a * a;
    sums.ab += a * b;
    sums.bb += b * b;
    sums.a += a;
    sums.b += b;
  }
  return sums;
}

double squares(const std::vector<Measured>& measured, const Fit& fit) {
  double sum = 0;
  for (const Measured& it : measured)
    sum += std::pow((fit.latency_us + fit.us_per_byte * it.bytes) / it.us - 1, 2);
  return sum;
}

}  // namespace

Fit fit_line(const std::vector<Measured>& measured) {
  const Sums sums = sums_of(measured);
  std::vector<Fit> candidates;  // the minimum without limits, and those with one factor set to 0
  const double determinant = sums.aa * sums.bb - sums.ab * sums.ab;
  if (determinant > 1e-12 * sums.aa * sums.bb)
    candidates.push_back({(sums.a * sums.bb - sums.b * sums.ab) / determinant,
                          (sums.b * sums.aa - sums.a * sums.ab) / determinant});
  if (sums.aa > 0) candidates.push_back({sums.a / sums.aa, 0});
  if (sums.bb > 0) candidates.push_back({0, sums.b / sums.bb});
  std::erase_if(candidates, [](const Fit& fit) { return fit.latency_us < 0 || fit.us_per_byte < 0; });
  Fit best;
  for (const Fit& fit : candidates)
    if (&fit == candidates.data() || squares(measured, fit) < squares(measured, best)) best = fit;
  for (const Measured& it : measured)
    best.largest_error =
        std::max(best.largest_error, std::abs((best.latency_us + best.us_per_byte * it.bytes) / it.us - 1));
  return best;
}

}  // namespace dscctl::bench
