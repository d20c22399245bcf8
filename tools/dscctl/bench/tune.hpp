// Finds the settings of DSC_TUNING that are the fastest on this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dscctl/bench/report.hpp"

namespace dscctl::bench {

// A value of a setting, and its times in microseconds: for each case, the best of several rounds.
struct Candidate {
  size_t value = 0;
  std::vector<double> best_us;
};

struct TunedSetting {
  std::string key;
  size_t present = 0;
  size_t fastest = 0;       // equal to `present` unless another value is clearly faster
  double gain = 0;          // share of the time that the fastest value saves over the cases
  std::vector<Case> cases;  // cases in which the setting makes a difference
  std::vector<Candidate> candidates;
};

struct Tuned {
  Settings settings;
  std::vector<TunedSetting> details;  // in the order in which they were measured
};

// Receives what is being measured, and about how many seconds the whole tuning still takes.
using OnProgress = std::function<void(const std::string& what, double left_s)>;

// `only` lists the keys to measure. If it is empty, all keys are measured, which takes a minute or more.
// DSC_TUNING of the environment is ignored. Throws std::invalid_argument for a key that the library does not
// know.
Tuned tune(int ranks, const std::vector<std::string>& only, int budget_ms, const OnProgress& tell);

std::string tuned_text(const Tuned& tuned, int ranks, bool with_times);
void add_to_json(Json& report, const Tuned& tuned, int ranks);
// Returns one line for each number of ranks, with the value for DSC_TUNING.
std::string table_text(const std::vector<std::pair<int, Settings>>& lines);

}  // namespace dscctl::bench
