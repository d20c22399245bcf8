// Which settings of DSC_TUNING are the fastest on this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dscctl/bench/report.hpp"

namespace dscctl::bench {

// A value of a setting, and microseconds with it: of each case the best of several rounds.
struct Candidate {
  size_t value = 0;
  std::vector<double> best_us;
};

struct TunedSetting {
  std::string key;
  size_t present = 0;
  size_t fastest = 0;       // `present`, unless another one is clearly faster
  double gain = 0;          // part of the time that it saves, over the cases
  std::vector<Case> cases;  // on which it makes a difference
  std::vector<Candidate> candidates;
};

struct Tuned {
  Settings settings;
  std::vector<TunedSetting> details;  // as they were found, one after the other
};

// What is being measured, and about how many seconds all of it still takes.
using OnProgress = std::function<void(const std::string& what, double left_s)>;

// `only`: keys to measure; empty: all, which takes a minute or more. DSC_TUNING of the environment does not
// count. Throws std::invalid_argument for a key that the library does not have.
Tuned tune(int ranks, const std::vector<std::string>& only, int budget_ms, const OnProgress& tell);

std::string tuned_text(const Tuned& tuned, int ranks, bool with_times);
void add_to_json(Json& report, const Tuned& tuned, int ranks);
// One line for each number of ranks, and what DSC_TUNING takes.
std::string table_text(const std::vector<std::pair<int, Settings>>& lines);

}  // namespace dscctl::bench
