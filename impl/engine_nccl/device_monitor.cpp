#include "engine_nccl/device_monitor.hpp"

namespace dsc {
namespace {

constexpr int64_t kErrorPollPeriodNs = 100 * kNsPerMs;
constexpr int64_t kAwaitedNs = kNsPerMs / 4;  // poll period while a program waits on a descriptor
constexpr int64_t kBusyNs = 5 * kNsPerMs;     // poll period while operations run
constexpr int64_t kIdleNs = 20 * kNsPerMs;    // poll period otherwise, to find failures of other ranks

}  // namespace

int64_t DeviceMonitor::poll() noexcept {
  if (ending_.finalized()) return kNsPerSecond;
  const int64_t now = now_ns();
  DeviceWorks::Activity activity;
  call_out([&] {
    if ((group_.host->revoked() || group_.host->state.is_closed()) && !ending_.begun()) owner_.give_up();
    activity = works_.update_all();
    if (ending_.begun()) return ending_.check_hung(now);
    if (!failures_.concluding()) check_group(now);
  });
  return activity.awaited ? kAwaitedNs : activity.running ? kBusyNs : kIdleNs;
}

void DeviceMonitor::check_group(int64_t now) {
  if (const auto found = works_.find_overdue(now)) return failures_.fail_group(*found);
  if (const auto found = late_.find(now)) return failures_.fail_group(*found);
  if (now < next_error_poll_ns_) return;
  next_error_poll_ns_ = now + kErrorPollPeriodNs;
  check_nccl(now);
}

// An error that a peer may have caused is reported only after kPeerNewsNs, because until then the host engine
// may find which peer failed.
void DeviceMonitor::check_nccl(int64_t now) {
  for (const auto& communicator : links_.communicators()) {
    const NcclResult error = communicator->async_error();
    if (error == NcclResult::success) continue;
    if (error_seen_ns_ == 0) error_seen_ns_ = now;
    const bool may_be_of_peer = error == NcclResult::remote_error || error == NcclResult::system_error;
    if (!may_be_of_peer || now - error_seen_ns_ >= kPeerNewsNs)
      return failures_.fail_group(*communicator, error);
    next_error_poll_ns_ = 0;  // checks again at the next poll
    return;
  }
}

}  // namespace dsc
