// Latency and bandwidth from measured times.
#pragma once

#include <vector>

namespace dscctl::bench {

struct Measured {
  double bytes = 0;
  double us = 0;  // more than 0
};

// us = latency_us + bytes * us_per_byte. Neither factor is negative.
struct Fit {
  double latency_us = 0;
  double us_per_byte = 0;
  double largest_error = 0;  // |fitted - measured| / measured
};

// Minimizes the squares of relative errors, so that small messages count as much as large ones.
Fit fit_line(const std::vector<Measured>& measured);

}  // namespace dscctl::bench
