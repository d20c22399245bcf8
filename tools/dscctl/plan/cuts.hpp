// Cuts of layers into parts beside that with the shortest busiest part, and how they are improved.
#pragma once

#include <functional>

#include "dscctl/plan/model.hpp"

namespace dscctl::plan {

// Parts that take about equal times.
Boundaries evenly(const Question& question, const Shape& shape);
// The fullest part as small as it can be, each with the activations that its stage holds. What the chunks of
// a stage hold is taken to be equal.
Boundaries by_held_memory(const Question& question, const Shape& shape, const Held& held);

// What a cut costs.
struct Trial {
  double step_us = 0;
  double peak_bytes = 0;    // of the fullest stage
  double uneven_time = 0;   // sum of squares of what stages compute
  double uneven_bytes = 0;  // sum of squares of what stages need
};
using TryCut = std::function<Trial(const Boundaries&)>;

// Within the memory the shortest step counts, and before that the least peak; 0 bytes: any memory. Between
// equals the one that is more even, so that a step over a plain can be the first of several that are needed.
bool is_better(const Trial& a, const Trial& b, double memory_bytes);

// Moves layers between parts, first to neighbours, as long as it gets better; then again from the best cut
// with a few random moves, the same ones every time, until no tries are left. It need not be the best cut.
Boundaries improved(const std::vector<Boundaries>& starts, const TryCut& try_cut, double memory_bytes,
                    size_t tries);

}  // namespace dscctl::plan
