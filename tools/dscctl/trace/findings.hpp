// Problems in a trace: ranks that are late, operations that do not finish, calls that differ, and failures.
#pragma once

#include <string>
#include <vector>

#include "dscctl/trace/lateness.hpp"
#include "dscctl/trace/operations.hpp"

namespace dscctl::trace {

enum class Kind { kLate, kDeadlock, kStuck, kStraggler, kMismatch, kFailed, kNoDump };

const char* kind_name(Kind kind);  // such as "LATE"

struct Finding {
  Kind kind = Kind::kLate;
  std::string text;
  std::vector<int> ranks;                // ranks that caused the problem or are affected
  const Operation* operation = nullptr;  // null: no particular operation
};

// A rank is late if another rank has waited for it this long, or until the operation timed out.
struct Rules {
  int64_t late_after_ns = 1'000'000'000;
};

std::vector<Finding> find_late(const Trace& trace, const std::vector<Operation>& operations,
                               const Rules& rules);
std::vector<Finding> find_stragglers(const Trace& trace, const std::vector<Lateness>& lateness);
std::vector<Finding> find_mismatches(const Trace& trace, const std::vector<Operation>& operations);
std::vector<Finding> find_failures(const Trace& trace, const std::vector<Operation>& operations);

// Returns the findings of all functions above and the ranks without a dump. The most important ones come
// first.
std::vector<Finding> find_all(const Trace& trace, const std::vector<Operation>& operations,
                              const std::vector<Lateness>& lateness, const Rules& rules);

}  // namespace dscctl::trace
