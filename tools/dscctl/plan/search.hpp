// Prices candidates by the simulator, best first.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dscctl/plan/model.hpp"

namespace dscctl::plan {

inline constexpr double kAsFast = 0.0005;  // of a step: no difference that a table shows

struct Row {
  std::string kind;
  std::vector<std::string> as_good;  // other schedules whose row is the same in all numbers
  Shape shape;
  Placement placement = Placement::kLoop;
  Boundaries boundaries;
  double step_us = 0;
  double idle = 0;  // part of the whole step, over all stages
  double peak_bytes = 0;
  size_t fullest = 0;          // the stage with them
  double busy_us = 0;          // of the busiest stage
  double network_us = 0;       // what messages and all-reduces add; only of rows that are shown
  double least_bytes = 0;      // the least peak of all cuts that were tried,
  Boundaries least_cut;        // and the cut that has it
  double origin_bound_us = 0;  // auto: no order is below it
};

struct Counts {
  size_t all = 0;
  size_t simulated = 0;
  size_t hopeless = 0;   // not simulated: their lower bound is above the last row of the table
  size_t left = 0;       // not simulated: the work had become too much
  size_t too_large = 0;  // for the library
  size_t searched = 0;   // shapes for which an order was looked for
  size_t improved = 0;   // for which other cuts were tried
  size_t repeated = 0;   // not shown: another row is the same answer
};

struct Answer {
  std::vector<Row> rows;      // that fit, best first, at most as many as wanted
  std::optional<Row> faster;  // the fastest that is faster than all of them and does not fit
  std::optional<Row> least;   // which needs the least memory of all that were tried, if none fits
  Counts counts;
  bool uses_messages = false, uses_reductions = false;  // any candidate
};

// How many of how many are done, and the best so far.
using OnProgress = std::function<void(size_t done, size_t all, const Row* best)>;

Answer find_plans(const Question& question, const OnProgress& tell);

// The schedule of a row, and what it costs.
schedule::Handle schedule_of(const Question& question, const Row& row);

}  // namespace dscctl::plan
