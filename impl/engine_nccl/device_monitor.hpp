// Supervision of one engine: completions, time-outs, errors of NCCL, and failures of other ranks.
#pragma once

#include "engine_nccl/device_links.hpp"
#include "engine_nccl/device_works.hpp"

namespace dsc {

// NcclEngine owns the object. Only the thread of DeviceWatch calls it.
class DeviceMonitor {
 public:
  DeviceMonitor(const NcclGroup& group, NcclEnding& ending, LateCalls& late, DeviceFailures& failures,
                DeviceWorks& works, const DeviceLinks& links, NcclOwner& owner)
      : group_(group),
        ending_(ending),
        late_(late),
        failures_(failures),
        works_(works),
        links_(links),
        owner_(owner) {}

  // Checks everything once, and fails the group if necessary. Returns after how many nanoseconds to poll
  // again.
  int64_t poll() noexcept;

 private:
  void check_group(int64_t now);
  void check_nccl(int64_t now);

  const NcclGroup& group_;
  NcclEnding& ending_;
  LateCalls& late_;
  DeviceFailures& failures_;
  DeviceWorks& works_;
  const DeviceLinks& links_;
  NcclOwner& owner_;
  int64_t next_error_poll_ns_ = 0;
  int64_t error_seen_ns_ = 0;  // 0: NCCL has reported no error
};

}  // namespace dsc
