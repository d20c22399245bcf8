#include "comm/call_signature.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/fixed_text.hpp"
#include "comm/describe.hpp"
#include "control/group.hpp"

namespace dsc {

CallSignature signature_of(const Call& call, uint64_t group, uint64_t number) {
  CallSignature shown{};
  shown.fields = fields_of(call);
  shown.fingerprint = fingerprint(group, number, shown.fields);
  std::memcpy(shown.note, call.note, sizeof shown.note);
  return shown;
}

namespace {

// Returns the ranks that differ from the majority or, with a tie, from the lowest rank.
std::vector<int32_t> ranks_at_fault(const std::map<uint64_t, std::vector<int32_t>>& by_fingerprint) {
  const auto most =
      std::max_element(by_fingerprint.begin(), by_fingerprint.end(), [](const auto& a, const auto& b) {
        return a.second.size() != b.second.size() ? a.second.size() < b.second.size()
                                                  : a.second.front() > b.second.front();
      });
  std::vector<int32_t> others;
  for (auto it = by_fingerprint.begin(); it != by_fingerprint.end(); ++it)
    if (it != most) others.insert(others.end(), it->second.begin(), it->second.end());
  std::sort(others.begin(), others.end());
  return others;
}

template <typename Key>
void sort_all(std::map<Key, std::vector<int32_t>>& groups) {
  for (auto& [key, ranks] : groups) std::sort(ranks.begin(), ranks.end());
}

}  // namespace

Failure failure_of(const CallDifference& found) noexcept {
  Failure failure;
  failure.code = DSC_ERR_MISMATCH;
  failure.ranks = found.ranks;
  failure.has_user_ranks = true;
  failure.text = found.text;
  return failure;
}

CallDifference difference(const std::vector<CallSignature>& all,
                          const std::vector<std::vector<int32_t>>& ranks) {
  std::map<std::string, std::vector<int32_t>> by_call;
  std::map<uint64_t, std::vector<int32_t>> by_fingerprint;
  for (size_t i = 0; i < all.size(); ++i) {
    for (auto* same : {&by_call[describe(all[i].fields, bounded_text(all[i].note).c_str())],
                       &by_fingerprint[all[i].fingerprint]})
      same->insert(same->end(), ranks[i].begin(), ranks[i].end());
  }
  if (by_fingerprint.size() < 2) return {};
  sort_all(by_call);
  sort_all(by_fingerprint);
  CallDifference found{"ranks called different operations: ", ranks_at_fault(by_fingerprint)};
  bool is_first = true;
  for (const auto& [call, who] : by_call) {
    found.text += (is_first ? "" : "; ") + list_ranks(who) + ": " + call;
    is_first = false;
  }
  if (by_call.size() == 1) found.text += ", with other lengths or another number";
  return found;
}

}  // namespace dsc
