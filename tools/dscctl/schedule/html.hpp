// Schedules as one page that needs nothing else: hover shows an operation, sliders price them again.
#pragma once

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

// Both throw for more operations than that. There is one schedule or more.
std::string html_of(const std::vector<Shown>& plans);
std::string html_of(const std::vector<Handle>& schedules, const Costs& costs);

}  // namespace dscctl::schedule
