// What one communicator does on its device: NCCL's communicators, their streams, and the watch over what runs
// there. The host's side decides when all ranks give up.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "comm/comm.hpp"
#include "comm/stats.hpp"
#include "engine_nccl/device_link.hpp"
#include "engine_nccl/device_work.hpp"
#include "engine_nccl/device_world.hpp"
#include "engine_nccl/operations.hpp"
#include "engine_nccl/published_calls.hpp"

namespace dsc {

struct DeviceParts {
  DeviceWorld world;
  std::shared_ptr<Comm> host;                      // of the same ranks
  std::shared_ptr<NcclCommunicator> communicator;  // null in a group of one
  std::shared_ptr<PublishedCalls> board;
  NcclSettings settings;
  int stream_priority = 0;
};

class DeviceEngine : public std::enable_shared_from_this<DeviceEngine> {
 public:
  explicit DeviceEngine(DeviceParts parts);
  // Throws BACKEND_STUCK once an abort has hung in this process.
  static void expect_usable();
  DeviceEngine(const DeviceEngine&) = delete;
  DeviceEngine& operator=(const DeviceEngine&) = delete;

  // Throws what run() and start() would throw before anybody else hears of the call.
  void check(const Call& call) const { check_usable(call); }
  // True for buffers of the device, false for those of the host. Throws INVALID_ARG for both in one call, or
  // for those of another device.
  bool takes(const Call& call);
  // A collective on host memory, which the ranks must call in the same place among those on devices.
  void note_host_call(const Call& call);

  // On call.stream, without waiting for the device.
  void run(const Call& call);
  // Behind call.stream, on a stream of its own.
  std::shared_ptr<DeviceWork> start(const Call& call);
  // As one operation. Messages among them are started by themselves: see start().
  void run_collectives(std::span<const Call> calls, void* stream);
  std::shared_ptr<DeviceWork> start_collectives(std::span<const Call> calls, void* stream);

  // A stream waits for a message, and the host until that is on its own stream.
  void join(DeviceWork& message, void* stream, Deadline deadline);

  // Operations on streams of the program's, of which nobody knows the end, may be under way.
  bool may_be_busy() const noexcept { return may_be_busy_; }
  // Collective: NCCL's communicator of a group of these ranks; null for color kNcclNoColor.
  std::shared_ptr<NcclCommunicator> split(int color, int key, const NcclSettings& settings);

  // False when the communicator is ending, and NCCL lets go of its windows by itself.
  bool deregister_window(NcclWindow* window) noexcept;
  // Null in a group of one.
  std::shared_ptr<NcclCommunicator> communicator() const {
    return collectives_ ? collectives_->shared_communicator() : nullptr;
  }
  // Throws BACKEND unless it is a success.
  void check_nccl(NcclResult result, const char* function) const;

  // --- Any thread.
  // One look at everything that may have happened; for how long nobody needs to look again.
  int64_t look() noexcept;
  void look_at(DeviceWork& work) noexcept;
  // The device makes a stream wait for an event.
  void let_wait(void* stream, const PooledEvent& event) const;
  // The communicator has failed: ends what runs here. Or this rank leaves: what runs goes on to its end,
  // within the time-out. Does not wait.
  void give_up() noexcept;
  // Until threads that end communicators are done, of all engines, or that of the program's is let go of.
  static void await_endings(Deadline deadline) noexcept;
  void await_adopted() const noexcept;
  // Works that nobody has seen end; and what the others hear when this rank goes all the same.
  bool has_running() noexcept;
  Failure destroyed() const;
  // Waits for what runs, and ends NCCL's communicators in an orderly way. Collective.
  void finalize();

  // A failure of this rank's own, which ends the communicator on all ranks.
  void fail_quietly(const Call& call, uint64_t number, const Error& error) noexcept;
  // A call has reported the failure.
  void note_told() const noexcept { told_.store(true); }
  // The communicator's time-out, or another one.
  NcclWait patience(int timeout_ms) const;

  // The communicator's failure, with what only this rank knows of it.
  Failure failure() const;

  const DeviceWorld& world() const noexcept { return world_; }
  const NcclSettings& settings() const noexcept { return settings_; }
  int stream_priority() const noexcept { return stream_priority_; }
  const Device& device() const noexcept { return *world_.nccl.device; }
  Comm& host() const noexcept { return *host_; }
  std::vector<OpStats> stats() const { return stats_.read(); }
  std::string describe(OpKind kind, uint64_t number, const std::string& text) const;

 private:
  int place_of(const Call& call, const void* buffer);
  enum class Ending { kNot, kEnding, kStuck, kEnded };

  void check_usable(const Call& call) const;
  [[noreturn]] void refuse(const Call& call) const;
  [[noreturn]] void refuse_difference(const Call& call, uint64_t number, const BoardDifference& difference,
                                      DeviceRecords* records);
  uint64_t show_all(std::span<const Call> calls, DeviceRecords& records);
  void put(std::span<const Call> calls, CudaStream* stream);
  void copy_locally(const Call& call, CudaStream* stream) const;
  void count(const Call& call) noexcept;
  bool captures(void* stream);
  void expect_link(const Call& call);
  enum class Drain { kCollectives, kAll };
  void drain(Drain which, Deadline deadline);
  std::shared_ptr<DeviceWork> begin_work(const Call& call, void* stream);
  std::shared_ptr<DeviceWork> begin_untracked(const Call& call, void* stream);
  void watch_untracked(std::shared_ptr<DeviceWork> untracked, uint64_t number);
  DeviceLink& link_for(const Call& call);
  void watch(std::shared_ptr<DeviceWork> work);
  std::vector<std::shared_ptr<NcclCommunicator>> communicators();

  // device_engine_watch.cpp
  bool has_passed(const PooledEvent& event) const;
  Failure failure_of(const DeviceWork& work) const;
  bool see_end(DeviceWork& work) noexcept;
  void see_passed() noexcept;
  void end_with_cause(DeviceWork& work) noexcept;
  bool has_run_to_its_end(const DeviceWork& work) const;
  dsc_result_t recorded_code(dsc_result_t code) noexcept;
  void write_trace_again() const noexcept;
  Failure take_failure(const Call& call, uint64_t number, const Error& error,
                       DeviceRecords* records = nullptr) noexcept;
  [[noreturn]] void fail_operation(const Call& call, uint64_t number, const Error& error,
                                   DeviceRecords* records = nullptr);
  void revoke(const Failure& cause) noexcept;
  void await_news(const Error& error) const;
  void look_for_errors();
  void end_communicators();
  void end(NcclCommunicator& communicator) noexcept;
  template <typename Body>
  void run_until(int64_t due_ns, const Body& body) noexcept;
  void await_kernels();
  void look_at_time(const std::vector<std::shared_ptr<DeviceWork>>& pending, int64_t now);
  void look_at_abort(int64_t now) noexcept;

  // device_engine_late.cpp
  void look_at_calls(int64_t now);
  void record_uncalled() noexcept;
  bool peer_left(const Call& call, uint64_t number);
  template <typename Late>
  bool somebody_left(OpKind kind, uint64_t number, const Late& late_ranks);
  void time_out(const Call& call, uint64_t number, int64_t elapsed_ns);
  void revoke_beside(const Failure& cause, const Call& call, uint64_t number);
  std::vector<CallThere> ask_all(const Call& call, uint64_t number);
  void explain(const Call& call, uint64_t number, Failure& cause);

  const DeviceWorld world_;
  const std::shared_ptr<Comm> host_;
  const NcclSettings settings_;
  const int stream_priority_;
  const std::unique_ptr<NcclOperations> collectives_;  // null in a group of one
  const std::shared_ptr<PublishedCalls> board_;        // null there, too
  const LocalMembers local_;
  const bool on_one_host_;
  Stream stream_;
  uint64_t alone_calls_ = 0;  // of a group of one
  uint64_t splits_ = 0;
  bool may_be_busy_ = false;
  StatsTable stats_;
  std::atomic<Ending> ending_{Ending::kNot};
  std::atomic<bool> aborted_{false};         // one of NCCL's communicators
  std::atomic<bool> cause_recorded_{false};  // of a failure, for the first operation that it struck
  std::atomic<bool> finalized_{false};
  std::atomic<bool> has_graphs_{false};    // operations were captured
  std::atomic<bool> concluding_{false};    // a thread finds out why, and tells
  std::atomic<int32_t> native_code_{0};    // of the failure that this rank had itself
  mutable std::atomic<bool> told_{false};  // a call on this rank has reported the failure

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<DeviceWork>> pending_ DSC_GUARDED_BY(mutex_);  // in the order of their calls
  std::map<std::pair<OpKind, int32_t>, std::unique_ptr<DeviceLink>> links_ DSC_GUARDED_BY(mutex_);
  std::multiset<int64_t> due_ns_ DSC_GUARDED_BY(mutex_);  // when calls that end communicators should be back
  int64_t next_error_look_ns_ = 0;                        // of the watch
  int64_t error_seen_ns_ = 0;                             // of the watch
  std::atomic<uint64_t> latest_call_{0};                  // on the device, not captured
  uint64_t awaited_call_ = 0;  // of the watch: one that others may be late for, and since when
  int64_t awaited_since_ns_ = 0;
};

}  // namespace dsc
