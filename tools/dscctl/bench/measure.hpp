// Measures this library: starts the ranks as processes of this program, which use the public interface only.
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
  std::optional<std::string> tuning;  // DSC_TUNING of the ranks; nothing: as it is
  std::vector<Case> cases;
  int budget_ms = 200;   // of timed calls, about, per case
  bool explain = false;  // also say which algorithm was chosen, and count context switches
};

struct Row {
  Case of;
  double median_us = 0;   // the slowest rank's
  std::string algorithm;  // empty: not asked for; "-": nothing was moved
  double switches = 0;    // context switches of a rank in one operation, on average, if asked for
};

// Settings in the library's order.
using Settings = std::vector<std::pair<std::string, size_t>>;
std::string settings_text(const Settings& settings);  // as DSC_TUNING takes them

// What the library says of itself.
struct Facts {
  Settings settings;
  std::map<std::string, std::string> rules;  // of each algorithm: when it is chosen
};

using OnRow = std::function<void(const Facts&, const Row&)>;

// Tells each row as it comes; nothing when the library refused the settings. Throws std::runtime_error with
// the first words of the rank that failed.
std::optional<Facts> measure(const Job& job, const OnRow& tell);

// One rank of it, in a process that measure() has started; its cases as one list with commas. Gives the exit
// code.
int run_rank(const std::string& cases, int budget_ms, bool explain);

}  // namespace dscctl::bench
