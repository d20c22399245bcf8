// Estimates how long the remaining measurements take, from how long the previous ones took.
#pragma once

#include <algorithm>
#include <cstddef>

namespace dscctl::bench {

// An amount of work: starts of all ranks, and measured cases.
struct Amount {
  size_t starts = 0;
  size_t cases = 0;

  Amount& operator+=(const Amount& more) {
    starts += more.starts;
    cases += more.cases;
    return *this;
  }
};

class Pace {
 public:
  explicit Pace(double guessed_case_s) : case_s_(guessed_case_s) {}

  // Records that `done` took this many seconds. Starts without cases show how long a start takes.
  void learn(const Amount& done, double seconds) {
    Total& total = done.cases == 0 ? starting_ : measuring_;
    total.amount += done;
    total.seconds += seconds;
    if (starting_.amount.starts > 0)
      start_s_ = starting_.seconds / static_cast<double>(starting_.amount.starts);
    if (measuring_.amount.cases == 0) return;
    const double spent = measuring_.seconds - start_s_ * static_cast<double>(measuring_.amount.starts);
    case_s_ = std::max(spent, 0.0) / static_cast<double>(measuring_.amount.cases);
  }

  double seconds_for(const Amount& amount) const {
    return start_s_ * static_cast<double>(amount.starts) + case_s_ * static_cast<double>(amount.cases);
  }

 private:
  struct Total {
    Amount amount;
    double seconds = 0;
  };

  Total starting_;
  Total measuring_;
  double start_s_ = 0.05;
  double case_s_;
};

}  // namespace dscctl::bench
