// Launches operations of one engine: checks and publishes the calls, puts them on streams, and hands
// operations that must be tracked to the works.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "engine_nccl/device_collectives.hpp"
#include "engine_nccl/device_links.hpp"
#include "engine_nccl/device_works.hpp"

namespace dsc {

// NcclEngine owns the object. One thread at a time uses it. Errors that concern only this rank's call are
// thrown before other ranks learn of the call. Later errors fail the group, because other ranks wait for the
// call.
class DeviceLaunches {
 public:
  DeviceLaunches(const NcclGroup& group, NcclEnding& ending, LateCalls& late, DeviceFailures& failures,
                 DeviceWorks& works, DeviceLinks& links, StatsTable& stats)
      : group_(group),
        ending_(ending),
        late_(late),
        failures_(failures),
        works_(works),
        links_(links),
        stats_(stats),
        collectives_(group, ending) {}

  // Returns why the device cannot run an operation, as Engine::unsupported_reason() does. Any thread may call
  // this.
  std::optional<std::string> unsupported_reason(const Call& call) const;
  // Runs the operation on call.stream, without waiting for the device.
  void run(const Call& call);
  // Runs the operation on another stream, after the work that is on call.stream now.
  std::shared_ptr<DeviceWork> start(const Call& call);
  // Run and start several calls as one operation.
  void run_batch(std::span<const Call> calls);
  std::shared_ptr<Work> start_batch(std::span<const Call> calls);

  // True once a collective was run on a stream of the program, because the engine does not know when it ends.
  bool may_be_busy() const noexcept { return may_be_busy_; }

 private:
  void check_usable(const Call& call);
  void load_kernels(const Call& call) const;
  uint64_t publish(std::span<const Call> calls, DeviceRecords& records);
  bool captures(CudaStream* stream);
  std::shared_ptr<DeviceWork> make_untracked(const Call& call, CudaStream* stream);
  void add_untracked(std::shared_ptr<DeviceWork> untracked, uint64_t sequence);
  void count(const Call& call) noexcept;
  // These calls must not contain messages; start() takes messages one by one.
  void run_collectives(std::span<const Call> calls, CudaStream* stream);
  std::shared_ptr<DeviceWork> start_collectives(std::span<const Call> calls, CudaStream* stream);
  template <typename Start>
  void start_whole(std::span<const Call> calls, const Start& start);
  void join(DeviceWork& message, CudaStream* stream, Deadline deadline);

  const NcclGroup& group_;
  NcclEnding& ending_;
  LateCalls& late_;
  DeviceFailures& failures_;
  DeviceWorks& works_;
  DeviceLinks& links_;
  StatsTable& stats_;
  DeviceCollectives collectives_;
  uint64_t alone_calls_ = 0;  // used in a group of one rank only
  bool may_be_busy_ = false;
};

}  // namespace dsc
