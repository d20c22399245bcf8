// Simulates the candidates, the most promising first.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dscctl/plan/model.hpp"

namespace dscctl::plan {

inline constexpr double kAsFast = 0.0005;  // relative difference of step times that a table does not show

struct Row {
  std::string kind;
  std::vector<std::string> as_good;  // other schedules with exactly the same numbers
  Shape shape;
  Placement placement = Placement::kLoop;
  Boundaries boundaries;
  double step_us = 0;
  double idle = 0;  // share of the step in which stages are idle, over all stages
  double peak_bytes = 0;
  size_t fullest = 0;          // the stage with the peak
  double busy_us = 0;          // compute time of the busiest stage
  double network_us = 0;       // time that messages and all-reduces add; only set for rows that are shown
  double least_bytes = 0;      // lowest peak of all cuts that were tried
  Boundaries least_cut;        // the cut with this lowest peak
  double origin_bound_us = 0;  // "auto" only: no order can take less time
};

struct Counts {
  size_t all = 0;
  size_t simulated = 0;
  size_t hopeless = 0;   // not simulated: their lower bound is above the last row of the table
  size_t left = 0;       // not simulated, because the limit of work was reached
  size_t too_large = 0;  // too large for the library
  size_t searched = 0;   // shapes for which an order was searched
  size_t improved = 0;   // rows for which other cuts were tried
  size_t repeated = 0;   // not shown, because another row is the same answer
};

struct Answer {
  std::vector<Row> rows;      // rows that fit, best first, at most as many as requested
  std::optional<Row> faster;  // the fastest row that is faster than all of `rows` but does not fit
  std::optional<Row> least;   // if none fits: the row that needs the least memory
  Counts counts;
  bool uses_messages = false, uses_reductions = false;  // true if any candidate uses them
};

// Receives how many candidates of `all` are done, and the best row so far.
using OnProgress = std::function<void(size_t done, size_t all, const Row* best)>;

Answer find_plans(const Question& question, const OnProgress& tell);

// Returns the schedule of a row.
schedule::Handle schedule_of(const Question& question, const Row& row);

}  // namespace dscctl::plan
