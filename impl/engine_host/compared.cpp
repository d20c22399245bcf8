#include "engine_host/compared.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/fixed_text.hpp"
#include "comm/describe.hpp"

namespace dsc {

Slot& ComparedOperation::describe_call() noexcept {
  Slot& slot = group_.next_slot();
  slot.call = fields_of(call_);
  slot.sequence = sequence_;
  slot.fingerprint = fingerprint(group_.id(), sequence_, slot.call);
  if (call_.note[0] != 0 || slot.note[0] != 0) std::memcpy(slot.note, call_.note, sizeof slot.note);
  return slot;
}

// The ranks at fault are those that differ from the majority or, with a tie, from the lowest rank.
bool ComparedOperation::report_mismatch() {
  std::vector<std::string> calls;
  std::map<uint64_t, std::vector<int32_t>> by_fingerprint;
  for (int member = 0; member < group_.size(); ++member) {
    const Slot& slot = group_.slot(member, group_.epoch());
    calls.push_back(describe(slot.call, bounded_text(slot.note).c_str()));
    by_fingerprint[slot.fingerprint].push_back(member);
  }
  const auto most =
      std::max_element(by_fingerprint.begin(), by_fingerprint.end(), [](const auto& a, const auto& b) {
        return a.second.size() != b.second.size() ? a.second.size() < b.second.size()
                                                  : a.second.front() > b.second.front();
      });
  std::vector<int32_t> others;
  for (int member = 0; member < group_.size(); ++member)
    if (group_.slot(member, group_.epoch()).fingerprint != most->first) others.push_back(member);
  std::string text = "ranks called different operations: " + describe_difference(calls);
  if (std::ranges::all_of(calls, [&](const std::string& call) { return call == calls.front(); }))
    text += "; " + list_ranks(group_.shown_ranks(others)) + (others.size() == 1 ? " has" : " have") +
            " other sizes";
  revoke(DSC_ERR_MISMATCH, others, text);
  return false;
}

}  // namespace dsc
