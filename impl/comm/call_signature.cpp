#include "comm/call_signature.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fixed_text.hpp"
#include "comm/describe.hpp"
#include "control/group.hpp"

namespace dsc {

CallSignature signature_of(const Call& call, uint64_t group, uint64_t sequence) {
  CallSignature shown{};
  shown.fields = fields_of(call);
  shown.fingerprint = fingerprint(group, sequence, shown.fields);
  std::memcpy(shown.note, call.note, sizeof shown.note);
  return shown;
}

CallSignature signature_of_message(const Call& call, uint64_t group, uint64_t sequence) {
  CallSignature shown{};
  shown.fields = fields_of(call);
  shown.fingerprint = fingerprint_of_message(group, sequence, shown.fields);
  return shown;
}

namespace {

using Ranks = std::vector<int32_t>;

// Groups ranks by the call that they made. Groups are ordered by their lowest rank.
template <typename Key>
class RanksByCall {
 public:
  void add(const Key& key, const Ranks& ranks) {
    auto same = std::ranges::find(calls_, key, &Same::first);
    if (same == calls_.end()) same = calls_.insert(same, {key, {}});
    same->second.insert(same->second.end(), ranks.begin(), ranks.end());
    std::ranges::sort(same->second);
    std::ranges::sort(calls_, {}, [](const Same& call) { return call.second.front(); });
  }
  const std::vector<std::pair<Key, Ranks>>& calls() const noexcept { return calls_; }

 private:
  using Same = std::pair<Key, Ranks>;
  std::vector<Same> calls_;
};

// Returns the ranks whose call differs from that of most ranks. In a tie, the group with the lowest rank
// counts as correct.
Ranks ranks_at_fault(const RanksByCall<uint64_t>& by_fingerprint) {
  const auto& calls = by_fingerprint.calls();
  const auto most = std::ranges::max_element(calls, {}, [](const auto& call) { return call.second.size(); });
  Ranks others;
  for (auto call = calls.begin(); call != calls.end(); ++call)
    if (call != most) others.insert(others.end(), call->second.begin(), call->second.end());
  std::ranges::sort(others);
  return others;
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

CallDifference difference(const std::vector<CallSignature>& all, const std::vector<Ranks>& ranks) {
  RanksByCall<std::string> by_text;
  RanksByCall<uint64_t> by_fingerprint;
  for (size_t i = 0; i < all.size(); ++i) {
    by_text.add(describe(all[i].fields, bounded_text(all[i].note).c_str()), ranks[i]);
    by_fingerprint.add(all[i].fingerprint, ranks[i]);
  }
  if (by_fingerprint.calls().size() < 2) return {};
  CallDifference found{"ranks called different operations", ranks_at_fault(by_fingerprint)};
  const char* separator = ": ";
  for (const auto& [call, who] : by_text.calls()) {
    found.text += separator + list_ranks(who) + ": " + call;
    separator = "; ";
  }
  if (by_text.calls().size() == 1)
    found.text += "; " + list_ranks(found.ranks) + (found.ranks.size() == 1 ? " differs" : " differ") +
                  " in arguments that are not shown";
  return found;
}

CallDifference difference_of_ends(const MessageEnd& one, const MessageEnd& other) {
  const auto described = [](const MessageEnd& end) {
    return list_ranks({&end.rank, 1}) + ": " + describe(end.fields, nullptr);
  };
  const auto& [low, high] =
      std::minmax(one, other, [](const MessageEnd& a, const MessageEnd& b) { return a.rank < b.rank; });
  return {"the two ends of a message differ: " + described(low) + "; " + described(high),
          {low.rank, high.rank}};
}

}  // namespace dsc
