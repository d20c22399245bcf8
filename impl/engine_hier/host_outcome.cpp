#include "engine_hier/host_outcome.hpp"

#include "base/error.hpp"

namespace dsc {

void HostOutcome::tell_members(GroupEngine& local, Deadline deadline) {
  if (local.size() > 1)
    run_on_host(local, call_of_bytes(OpKind::kBroadcast, 0, this, this, sizeof *this), deadline);
  if (!failed) return;
  failure.bound();
  if (failure.code == DSC_OK) failure.code = DSC_ERR_PROTOCOL;  // the leader is corrupted
  throw Error(failure);
}

void run_on_host(GroupEngine& local, Call call, Deadline deadline) {
  constexpr int kGraceMs = 1000;
  call.timeout_ms =
      static_cast<int32_t>(std::min<int64_t>(deadline.remaining_ms(), INT32_MAX / 2)) + kGraceMs;
  local.run(call);
}

}  // namespace dsc
