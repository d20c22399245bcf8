#include "engine_host/compared.hpp"

#include <cstring>
#include <vector>

#include "comm/call_signature.hpp"

namespace dsc {

Slot& ComparedOperation::describe_call() noexcept {
  Slot& slot = group_.next_slot();
  slot.call = fields_of(call_);
  slot.sequence = sequence_;
  slot.fingerprint = fingerprint(group_.id(), sequence_, slot.call);
  if (call_.note[0] != 0 || slot.note[0] != 0) std::memcpy(slot.note, call_.note, sizeof slot.note);
  return slot;
}

bool ComparedOperation::report_mismatch() {
  std::vector<CallSignature> calls;
  std::vector<std::vector<int32_t>> members;
  for (int member = 0; member < group_.size(); ++member) {
    const Slot& slot = group_.slot(member, group_.epoch());
    CallSignature& call = calls.emplace_back(CallSignature{slot.fingerprint, slot.call, {}});
    std::memcpy(call.note, slot.note, sizeof call.note);
    members.push_back({member});
  }
  const CallDifference found = difference(calls, members);
  revoke(DSC_ERR_MISMATCH, found.ranks, found.text);
  return false;
}

}  // namespace dsc
