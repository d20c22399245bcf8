#include "dscctl/plan/cuts.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace dscctl::plan {
namespace {

constexpr double kEqual = 1e-9;
constexpr size_t kShakes = 20;

// Returns a negative number if a is smaller, a positive number if b is smaller, and 0 if they differ only by
// rounding.
int order_of(double a, double b) { return a < b * (1 - kEqual) ? -1 : b < a * (1 - kEqual) ? 1 : 0; }

// Fills parts greedily: every part takes as many layers as its limit allows, but leaves one layer for each
// later part.
Boundaries filled(const std::vector<std::vector<double>>& sums, size_t parts, double limit) {
  const size_t layers = sums.front().size() - 1;
  Boundaries cut{0};
  for (size_t part = 0; part < parts; ++part) {
    const std::vector<double>& sum = sums[part];
    const size_t first = cut.back(), last = layers - (parts - 1 - part);
    const auto end = std::upper_bound(sum.begin() + static_cast<ptrdiff_t>(first),
                                      sum.begin() + static_cast<ptrdiff_t>(last) + 1, sum[first] + limit);
    const size_t taken = static_cast<size_t>(end - sum.begin()) - 1;
    if (taken == first) return {};
    cut.push_back(taken);
  }
  return cut.back() == layers ? cut : Boundaries{};
}

// Chooses boundaries at which the sum of the layers before is nearest to an equal share. Every part has at
// least one layer.
Boundaries nearest_to(const std::vector<double>& sum, size_t parts) {
  const size_t layers = sum.size() - 1;
  Boundaries cut{0};
  for (size_t part = 1; part < parts; ++part) {
    const double wanted = sum.back() * static_cast<double>(part) / static_cast<double>(parts);
    auto at = static_cast<size_t>(std::lower_bound(sum.begin(), sum.end(), wanted) - sum.begin());
    if (at > 0 && wanted - sum[at - 1] < sum[std::min(at, layers)] - wanted) --at;
    cut.push_back(std::clamp(at, cut.back() + 1, layers - (parts - part)));
  }
  cut.push_back(layers);
  return cut;
}

// Moves the boundaries `first` to `last` by one layer. Returns an empty list if a part would become empty.
Boundaries moved(const Boundaries& cut, size_t first, size_t last, bool is_up) {
  if (is_up ? cut[last] + 1 == cut[last + 1] : cut[first] - 1 == cut[first - 1]) return {};
  Boundaries other = cut;
  for (size_t i = first; i <= last; ++i) is_up ? ++other[i] : --other[i];
  return other;
}

// Makes a few random moves.
Boundaries shaken(Boundaries cut, std::mt19937& random) {
  constexpr int kMoves = 3;
  const size_t inner = cut.size() - 2;
  for (int i = 0; i < kMoves; ++i) {
    const size_t one = 1 + random() % inner, other = 1 + random() % inner;
    const Boundaries next = moved(cut, std::min(one, other), std::max(one, other), random() % 2 == 0);
    if (!next.empty()) cut = next;
  }
  return cut;
}

// Improves a cut by single moves until no single move improves it.
class Descent {
 public:
  Descent(const TryCut& try_cut, double memory_bytes, size_t tries)
      : try_cut_(try_cut), memory_bytes_(memory_bytes), tries_(tries) {}

  bool can_go_on() const { return tries_ > 0 && best_.size() > 2; }
  const Boundaries& best() const { return best_; }

  void go_from(Boundaries cut) {
    if (tries_ == 0 && !best_.empty()) return;
    Trial trial = tried(cut);
    // Moves of all ranges of inner boundaries.
    const size_t inner = cut.size() - 2, moves = 2 * inner * inner;
    for (size_t failed = 0, move = 0; tries_ > 0 && failed < moves; move = (move + 1) % moves) {
      const size_t length = move / (2 * inner), first = 1 + move / 2 % inner;
      ++failed;
      if (first + length > inner) continue;
      Boundaries other = moved(cut, first, first + length, move % 2 == 0);
      if (other.empty()) continue;
      const Trial next = tried(other);
      if (!is_better(next, trial, memory_bytes_)) continue;
      trial = next;
      cut = std::move(other);
      failed = 0;
    }
    if (!best_.empty() && !is_better(trial, best_trial_, memory_bytes_)) return;
    best_trial_ = trial;
    best_ = std::move(cut);
  }

 private:
  Trial tried(const Boundaries& cut) {
    tries_ -= tries_ > 0 ? 1 : 0;
    return try_cut_(cut);
  }

  const TryCut& try_cut_;
  const double memory_bytes_;
  size_t tries_;
  Boundaries best_;
  Trial best_trial_;
};

}  // namespace

Boundaries evenly(const Question& question, const Shape& shape) {
  std::vector<double> sum{0};
  for (const Layer& layer : question.layers)
    sum.push_back(sum.back() + layer_us(question, layer, shape.samples));
  return nearest_to(sum, static_cast<size_t>(shape.parts()));
}

Boundaries by_held_memory(const Question& question, const Shape& shape, const Held& held) {
  constexpr int kHalvings = 40;
  constexpr size_t kMostSums = 1'000'000;
  const auto parts = static_cast<size_t>(shape.parts());
  if (parts * question.layers.size() > kMostSums) return {};
  std::vector<std::vector<double>> sums(parts, {0});
  double most = 0;
  for (size_t part = 0; part < parts; ++part) {
    const double own = static_cast<double>(held.of_part(shape, static_cast<int>(part)));
    for (const Layer& layer : question.layers)
      sums[part].push_back(sums[part].back() + layer_bytes(question, layer, shape.samples, own));
    most = std::max(most, sums[part].back());
  }
  Boundaries best;
  double least = 0;
  for (int i = 0; i < kHalvings && (best.empty() || order_of(least, most) < 0); ++i) {
    const double limit = i == 0 ? most : (least + most) / 2;
    if (Boundaries cut = filled(sums, parts, limit); !cut.empty()) {
      best = std::move(cut);
      most = limit;
    } else {
      least = limit;
    }
  }
  return best;
}

bool is_better(const Trial& a, const Trial& b, double memory_bytes) {
  const auto fits = [&](const Trial& it) { return memory_bytes <= 0 || it.peak_bytes <= memory_bytes; };
  if (fits(a) != fits(b)) return fits(a);
  const int first = fits(a) ? order_of(a.step_us, b.step_us) : order_of(a.peak_bytes, b.peak_bytes);
  if (first != 0) return first < 0;
  return (fits(a) ? order_of(a.uneven_time, b.uneven_time) : order_of(a.uneven_bytes, b.uneven_bytes)) < 0;
}

Boundaries improved(const std::vector<Boundaries>& starts, const TryCut& try_cut, double memory_bytes,
                    size_t tries) {
  Descent descent(try_cut, memory_bytes, tries);
  for (const Boundaries& start : starts) descent.go_from(start);
  std::mt19937 random(1);
  for (size_t i = 0; i < kShakes && descent.can_go_on(); ++i) descent.go_from(shaken(descent.best(), random));
  return descent.best();
}

}  // namespace dscctl::plan
