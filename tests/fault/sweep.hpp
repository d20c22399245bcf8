// Many trials of one kind, each with its own seed. Reports how many ran, which one failed, and how long they
// took.
#pragma once

#include <climits>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace fault {

// Returns whether to try all cases instead of a random selection, with larger data and a report of progress.
// True for at least ten times the usual repetitions, as in ./dev test all faults.
bool at_length();

// DSC_TEST_REPETITIONS scales the number of trials. DSC_TEST_SEED repeats a sweep, DSC_TEST_TRIAL repeats one
// trial of it, and DSC_TEST_REPEAT is the number of runs of that trial.
class Sweep {
 public:
  // The smallest number of trials that still makes sense, and the number after which all cases were tried.
  struct Bounds {
    int least = 1;
    int most = INT_MAX;
  };
  Sweep(const char* what, int usual, Bounds bounds);

  // Starts the next trial. Returns false when all are done. A long sweep reports its progress now and then.
  bool next();
  int trial() const { return trial_; }
  int done() const { return done_; }
  // Returns the random numbers of this trial.
  std::mt19937_64 random() const;
  // Describes how to repeat this trial.
  std::string replay() const;

  // Adds a duration or another number of the current trial.
  void add(const char* series, int64_t us) { series_[series].push_back(us); }
  // Counts the trials in which something happened.
  void tally(const char* event, bool happened) { tallies_[event] += happened; }
  int tallied(const char* event) { return tallies_[event]; }
  // Prints the median, the 99th percentile and the maximum of each series, and the tallies.
  void report();
  // Fails the test if the median is larger. A busy machine may delay some trials for long, but not half of
  // them.
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
  std::map<std::string, int> tallies_;
};

}  // namespace fault
