// Shows schedules as a self-contained HTML page. The user can zoom and move it, hover over an operation, and
// change costs and sizes with sliders.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dscctl/schedule/handle.hpp"

namespace dscctl::schedule {

inline constexpr size_t kMostShown = 200'000;  // operations; larger schedules cannot be shown

// A schedule with its own costs.
struct Shown {
  Handle schedule;
  std::string title;
  Costs costs;
};

// Facts that apply to the whole page.
struct PageFacts {
  std::string note;         // the basis of the numbers; may be empty
  bool are_us = false;      // times are microseconds
  double memory_bytes = 0;  // memory of a device; 0: unlimited
};

// A schedule that may be made for other sizes too. `make` throws if the schedule does not exist for a size.
struct Family {
  Handle schedule;
  std::function<Handle(int32_t stages, int32_t micro_batches)> make;  // may be empty
};

// Both functions throw if a schedule has more than kMostShown operations. The list must not be empty. The
// first of `plans` is the recommended one.
std::string html_of(const std::vector<Shown>& plans, const PageFacts& facts);
std::string html_of(const std::vector<Family>& families, const Costs& costs, const PageFacts& facts);

}  // namespace dscctl::schedule
