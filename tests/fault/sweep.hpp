// Many trials of one kind, each from a seed of its own: how many, which one failed, what they took.
#pragma once

#include <climits>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace fault {

// Whether everything is tried of which otherwise some is drawn, with larger data and with progress: at ten
// times the usual repetitions and more, as in ./dev test fault-long.
bool at_length();

// DSC_TEST_REPETITIONS scales the number of trials. DSC_TEST_SEED repeats a sweep, DSC_TEST_TRIAL one trial
// of it, and DSC_TEST_REPEAT that trial so many times.
class Sweep {
 public:
  // The trials with which a sweep still says something, and those after which it has tried all there is.
  struct Bounds {
    int least = 1;
    int most = INT_MAX;
  };
  Sweep(const char* what, int usual, Bounds bounds);

  // Goes to the next trial; false when all are done. A long sweep says now and then how far it is.
  bool next();
  int trial() const { return trial_; }
  int done() const { return done_; }
  // The numbers that this trial is made of.
  std::mt19937_64 random() const;
  // How to have this trial again.
  std::string replay() const;

  // A duration or another figure of the current trial.
  void add(const char* series, int64_t us) { series_[series].push_back(us); }
  // The middle, the 99th hundredth and the largest of each series.
  void report();
  // Fails the test if every other trial took longer: whoever keeps the machine busy stops a few for long.
  void expect_median(const char* series, int64_t most_us);

 private:
  const char* const what_;
  const uint64_t seed_;
  int first_;
  int trials_;
  int trial_ = -1;
  int done_ = -1;
  int64_t said_ms_;
  std::map<std::string, std::vector<int64_t>> series_;
};

}  // namespace fault
