// What is wrong in a trace: who is late, who does not get on, what does not fit, what failed.
#pragma once

#include <string>
#include <vector>

#include "dscctl/trace/lateness.hpp"
#include "dscctl/trace/operations.hpp"

namespace dscctl::trace {

enum class Kind { kLate, kDeadlock, kStuck, kStraggler, kMismatch, kFailed, kNoDump };

const char* kind_name(Kind kind);  // "LATE"

struct Finding {
  Kind kind = Kind::kLate;
  std::string text;
  std::vector<int> ranks;                // those at fault or concerned
  const Operation* operation = nullptr;  // null: none in particular
};

// A rank is late when another one waited for it this long, or until the operation's time-out.
struct Rules {
  int64_t late_after_ns = 1'000'000'000;
};

std::vector<Finding> find_late(const Trace& trace, const std::vector<Operation>& operations,
                               const Rules& rules);
std::vector<Finding> find_stragglers(const Trace& trace, const std::vector<Lateness>& lateness);
std::vector<Finding> find_mismatches(const Trace& trace, const std::vector<Operation>& operations);
std::vector<Finding> find_failures(const Trace& trace, const std::vector<Operation>& operations);

// All of these and the ranks without a dump, the most telling first.
std::vector<Finding> find_all(const Trace& trace, const std::vector<Operation>& operations,
                              const std::vector<Lateness>& lateness, const Rules& rules);

}  // namespace dscctl::trace
