// Measures this library. It starts the ranks as processes of this program, which use only the public
// interface.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dscctl/bench/operation.hpp"

namespace dscctl::bench {

struct Job {
  int ranks = 2;
  std::optional<std::string> tuning;  // DSC_TUNING of the ranks; nullopt: unchanged
  std::vector<Case> cases;
  int budget_ms = 200;   // approximate time of the timed calls per case
  bool explain = false;  // also report the chosen algorithm, and count context switches
};

struct Row {
  Case of;
  double median_us = 0;   // of the slowest rank
  std::string algorithm;  // empty: not requested; "-": no data was moved
  double switches = 0;    // average context switches of a rank per operation, if requested
};

// Settings in the order in which the library lists them.
using Settings = std::vector<std::pair<std::string, size_t>>;
std::string settings_text(const Settings& settings);  // as DSC_TUNING takes them

// What the library reports about itself.
struct Facts {
  Settings settings;
  std::map<std::string, std::string> rules;  // for each algorithm, when it is chosen
};

using OnRow = std::function<void(const Facts&, const Row&)>;

// Calls `tell` for each row as soon as it is measured. Returns nullopt if the library refused the settings.
// Throws std::runtime_error with the first message of the rank that failed.
std::optional<Facts> measure(const Job& job, const OnRow& tell);

// Runs one rank of a measurement, in a process that measure() has started. `cases` is a comma-separated list.
// Returns the exit code.
int run_rank(const std::string& cases, int budget_ms, bool explain);

}  // namespace dscctl::bench
