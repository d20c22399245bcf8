// The operations of one engine that run on the device or wait for it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.hpp"
#include "engine_nccl/device_failures.hpp"
#include "engine_nccl/device_work.hpp"

namespace dsc {

// Completes works when their events have passed or their group has failed. The engine owns it; any thread may
// call it.
class DeviceWorks {
 public:
  DeviceWorks(const NcclGroup& group, const NcclEnding& ending, const LateCalls& late,
              DeviceFailures& failures, NcclOwner& owner)
      : group_(group), ending_(ending), late_(late), failures_(failures), owner_(owner) {}

  // Makes a work with its events; it will wait for the work that is on `stream` now.
  std::shared_ptr<DeviceWork> make(const Call& call, CudaStream* stream, bool captured);
  // Adds a work that is completely on its stream, or a message, which is put on its stream later.
  void add(std::shared_ptr<DeviceWork> work);
  void clear();

  // Completes a work if it has ended.
  void update(DeviceWork& work) noexcept;
  // What update_all() has found.
  struct Activity {
    bool running = false;
    bool awaited = false;  // a descriptor or a countdown waits for a work
  };
  // Updates all works.
  Activity update_all();
  // Called before the group is given up: completes the works that have ended by then, because these have not
  // failed.
  void complete_ended() noexcept;
  // Returns false only if all works of the program are known to have ended.
  bool any_running() noexcept;
  // Returns a failure if an operation has exceeded its time-out or can never complete. Only DeviceWatch calls
  // this.
  std::optional<CallFailure> find_overdue(int64_t now);
  // Called after a failure. If a rank of this host has not called an operation, records the operation as
  // failed. For other operations that were launched without an event, it is not known whether they have
  // completed.
  void record_uncalled() noexcept;

  // Waits until the started works have ended; throws TIMEOUT. kCollectives leaves out messages, which have
  // their own NCCL communicators.
  enum class Drain { kCollectives, kAll };
  void drain(Drain which, Deadline deadline);
  // Waits for kernels that still run. If ranks are threads of one process, NCCL's abort can return before its
  // kernels have ended.
  void await_kernels();

  // DeviceWork calls the following functions.
  // Makes a stream of the device wait for an event.
  void make_wait(void* stream, const PooledEvent& event) const;
  void note_reported() noexcept { failures_.note_reported(); }

 private:
  using List = std::vector<std::shared_ptr<DeviceWork>>;  // in the order of their calls

  List pending() const;
  bool has_passed(const PooledEvent& event) const;
  bool complete_if_over(DeviceWork& work) noexcept;
  void complete_with_cause(DeviceWork& work) noexcept;
  bool has_run_to_its_end(const DeviceWork& work) const;
  void write_trace_again() const noexcept;

  const NcclGroup& group_;
  const NcclEnding& ending_;
  const LateCalls& late_;
  DeviceFailures& failures_;
  NcclOwner& owner_;
  mutable Mutex mutex_;
  List pending_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
