// Cuts layers into parts in other ways than by_time(), which minimizes the time of the slowest part. Also
// improves cuts.
#pragma once

#include <functional>

#include "dscctl/plan/model.hpp"

namespace dscctl::plan {

// Returns parts that take about equal times.
Boundaries evenly(const Question& question, const Shape& shape);
// Minimizes the memory of the largest part, including the activations that its stage holds. It assumes that
// all chunks of a stage hold the same number of activations.
Boundaries by_held_memory(const Question& question, const Shape& shape, const Held& held);

// The cost of a cut.
struct Trial {
  double step_us = 0;
  double peak_bytes = 0;    // of the stage that needs most
  double uneven_time = 0;   // sum of the squares of the stages' compute times
  double uneven_bytes = 0;  // sum of the squares of the stages' memory
};
using TryCut = std::function<Trial(const Boundaries&)>;

// Among cuts that fit into the memory, the one with the shortest step is better. Among other cuts, the one
// with the lowest peak is better. 0 bytes mean that memory is unlimited. Of two equal cuts the more even one
// is better, because a move that gains nothing by itself may be the first of several that gain something.
bool is_better(const Trial& a, const Trial& b, double memory_bytes);

// Moves layers between parts, first between neighbors, as long as the cut improves. Then repeats this from
// the best cut with a few random moves, until all tries are used. The random moves are the same in every run.
// The result need not be the best cut.
Boundaries improved(const std::vector<Boundaries>& starts, const TryCut& try_cut, double memory_bytes,
                    size_t tries);

}  // namespace dscctl::plan
