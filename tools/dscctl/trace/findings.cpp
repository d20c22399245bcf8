#include "dscctl/trace/findings.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

#include "dscctl/trace/text.hpp"

namespace dscctl::trace {
namespace {

// Reports an operation in which all ranks have arrived, but some have not finished.
std::optional<Finding> stuck_in(const Trace& trace, const Operation& operation, const Rules& rules) {
  std::vector<int> inside, done;
  int64_t longest = 0;
  for (const Participant& participant : operation.participants) {
    const Entry* entry = participant.entry;
    if (entry == nullptr) continue;
    if (entry->completed && !entry->failed()) done.push_back(participant.rank);
    if (!entry->met || !entry->unfinished()) continue;
    inside.push_back(participant.rank);
    longest = std::max(longest, participant.dump->time - *entry->met);
  }
  if (inside.empty() || longest < rules.late_after_ns) return std::nullopt;
  std::string text = ranks_text(inside) + (inside.size() == 1 ? " is" : " are") + " still moving data in " +
                     title(trace, operation) + ", for " + duration_text(longest);
  if (!done.empty()) text += "; " + ranks_text(done) + " completed it";
  return Finding{Kind::kStuck, text, inside, &operation};
}

std::vector<Finding> find_stuck(const Trace& trace, const std::vector<Operation>& operations,
                                const Rules& rules) {
  std::vector<Finding> findings;
  for (const Operation& operation : operations)
    if (const auto finding = stuck_in(trace, operation, rules)) findings.push_back(*finding);
  return findings;
}

std::vector<Finding> find_missing(const Trace& trace) {
  if (trace.missing.empty()) return {};
  const char* verb = trace.missing.size() == 1 ? " has" : " have";
  return {{Kind::kNoDump, ranks_text(trace.missing) + verb + " no usable dump", trace.missing, nullptr}};
}

}  // namespace

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kLate:
      return "LATE";
    case Kind::kDeadlock:
      return "DEADLOCK";
    case Kind::kStuck:
      return "STUCK";
    case Kind::kStraggler:
      return "STRAGGLER";
    case Kind::kMismatch:
      return "MISMATCH";
    case Kind::kFailed:
      return "FAILED";
    case Kind::kNoDump:
      return "NO DUMP";
  }
  return "";
}

std::vector<Finding> find_all(const Trace& trace, const std::vector<Operation>& operations,
                              const std::vector<Lateness>& lateness, const Rules& rules) {
  std::vector<Finding> findings = find_late(trace, operations, rules);
  for (auto more :
       {find_stuck(trace, operations, rules), find_stragglers(trace, lateness),
        find_mismatches(trace, operations), find_failures(trace, operations), find_missing(trace)})
    findings.insert(findings.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
  return findings;
}

}  // namespace dscctl::trace
