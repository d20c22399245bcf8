// Finds calls that differ between ranks, and operations that failed.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "dscctl/trace/findings.hpp"
#include "dscctl/trace/text.hpp"

namespace dscctl::trace {
namespace {

constexpr const char* kRevoked = "DSC_ERR_REVOKED";

// Operations in which all ranks' parts have the same size.
constexpr std::array kEqualParts = {"all_reduce",     "reduce", "broadcast", "all_gather",
                                    "reduce_scatter", "gather", "scatter",   "all_to_all"};

// Returns a property of a rank's call. An empty text matches everything, because the rank did not record the
// property.
using Property = std::string (*)(const Operation&, const Entry&);

std::string operation_name(const Operation& operation, const Entry& entry) {
  return operation.is_message ? "" : entry.name;
}

std::string element_type(const Operation&, const Entry& entry) { return entry.dtype; }

std::string reduction(const Operation&, const Entry& entry) {
  return entry.reduce_op.empty() ? "" : "reduction " + entry.reduce_op;
}

std::string root(const Operation&, const Entry& entry) {
  return entry.root ? "root rank " + std::to_string(*entry.root) : "";
}

std::string size(const Operation& operation, const Entry& entry) {
  const bool equal = operation.is_message ||
                     std::find(kEqualParts.begin(), kEqualParts.end(), entry.name) != kEqualParts.end();
  const std::optional<int64_t> elements = part_elements(entry);
  return equal && elements ? count_text(*elements, "element") : "";
}

constexpr std::array<Property, 5> kProperties = {operation_name, element_type, reduction, root, size};

using RanksByValue = std::map<std::string, std::vector<int>>;

std::string values_text(const RanksByValue& values) {
  std::vector<std::pair<std::string, std::vector<int>>> sorted(values.begin(), values.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::string text;
  for (const auto& [value, ranks] : sorted)
    text += (text.empty() ? "" : "; ") + value + " on " + ranks_text(ranks);
  return text;
}

// Returns the ranks that differ from the largest set of ranks with equal values.
std::vector<int> outvoted(const RanksByValue& values) {
  const auto most = std::max_element(values.begin(), values.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  std::vector<int> ranks;
  for (auto value = values.begin(); value != values.end(); ++value)
    if (value != most) ranks.insert(ranks.end(), value->second.begin(), value->second.end());
  return ranks;
}

std::string number_text(const Trace& trace, const Operation& operation) {
  if (operation.is_message) return title(trace, operation);
  return "collective " + std::to_string(operation.sequence) + " of group \"" +
         trace.groups[operation.group].name + "\"";
}

std::optional<Finding> mismatch_of(const Trace& trace, const Operation& operation) {
  for (const Property property : kProperties) {
    RanksByValue values;
    for (const Participant& participant : operation.participants) {
      if (participant.entry == nullptr) continue;
      const std::string value = property(operation, *participant.entry);
      if (!value.empty()) values[value].push_back(participant.rank);
    }
    if (values.size() < 2) continue;
    const std::string what =
        property == operation_name ? number_text(trace, operation) : title(trace, operation);
    return Finding{Kind::kMismatch, what + " does not match: " + values_text(values), outvoted(values),
                   &operation};
  }
  return std::nullopt;
}

RanksByValue results_of(const Operation& operation) {
  RanksByValue results;
  for (const Participant& participant : operation.participants)
    if (participant.entry != nullptr && participant.entry->failed())
      results[participant.entry->result].push_back(participant.rank);
  return results;
}

std::vector<int> all_ranks(const RanksByValue& values) {
  std::set<int> ranks;
  for (const auto& [value, some] : values) ranks.insert(some.begin(), some.end());
  return {ranks.begin(), ranks.end()};
}

// Operations that failed only because their group had failed before. They are reported in one line.
struct Revoked {
  int64_t operations = 0;
  std::set<int> ranks;
  const Operation* first = nullptr;
};

}  // namespace

std::vector<Finding> find_mismatches(const Trace& trace, const std::vector<Operation>& operations) {
  std::vector<Finding> findings;
  for (const Operation& operation : operations)
    if (auto finding = mismatch_of(trace, operation)) findings.push_back(std::move(*finding));
  return findings;
}

std::vector<Finding> find_failures(const Trace& trace, const std::vector<Operation>& operations) {
  std::vector<Finding> findings;
  std::map<size_t, Revoked> revoked;
  for (const Operation& operation : operations) {
    const RanksByValue results = results_of(operation);
    if (results.empty()) continue;
    const std::vector<int> ranks = all_ranks(results);
    if (results.size() == 1 && results.contains(kRevoked)) {
      Revoked& of_group = revoked[operation.group];
      if (of_group.first == nullptr) of_group.first = &operation;
      of_group.ranks.insert(ranks.begin(), ranks.end());
      ++of_group.operations;
      continue;
    }
    findings.push_back(
        {Kind::kFailed, title(trace, operation) + " failed: " + values_text(results), ranks, &operation});
  }
  for (const auto& [group, of_group] : revoked) {
    const std::vector<int> ranks(of_group.ranks.begin(), of_group.ranks.end());
    findings.push_back({Kind::kFailed,
                        count_text(of_group.operations, "operation") + " of group \"" +
                            trace.groups[group].name + "\" ended with DSC_ERR_REVOKED on " +
                            ranks_text(ranks),
                        ranks, of_group.first});
  }
  return findings;
}

}  // namespace dscctl::trace
