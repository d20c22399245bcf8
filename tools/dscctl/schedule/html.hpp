// Schedules as one page that needs nothing else: it is zoomed and moved, hover shows an operation, and
// sliders price the schedules again, also of other sizes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dscctl/schedule/handle.hpp"

namespace dscctl::schedule {

inline constexpr size_t kMostShown = 200'000;  // operations

// A schedule with costs of its own.
struct Shown {
  Handle schedule;
  std::string title;
  Costs costs;
};

// What belongs to a whole page.
struct PageFacts {
  std::string note;         // what the numbers rest on; may be empty
  bool are_us = false;      // times are microseconds
  double memory_bytes = 0;  // of a device; 0: any
};

// A schedule that may be made for other sizes as well; throws if there is none for them.
struct Family {
  Handle schedule;
  std::function<Handle(int32_t stages, int32_t micro_batches)> make;  // may be empty
};

// Both throw for more operations than that. There is one schedule or more. Of plans the first is the
// recommended one.
std::string html_of(const std::vector<Shown>& plans, const PageFacts& facts);
std::string html_of(const std::vector<Family>& families, const Costs& costs, const PageFacts& facts);

}  // namespace dscctl::schedule
