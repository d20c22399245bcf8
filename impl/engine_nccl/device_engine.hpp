// The device side of one communicator: NCCL's communicators, their streams, and the supervision of running
// operations. The host's communicator decides when the group has failed.
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

// The arguments of a DeviceEngine.
struct DeviceParts {
  DeviceWorld world;
  std::shared_ptr<Comm> host;                      // has the same ranks
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

  // Throws the errors that run() and start() find before other ranks learn of the call.
  void check(const Call& call) const { check_usable(call); }
  // Returns true if the buffers are on this device, false if they are in host memory. Throws INVALID_ARG if
  // one call mixes both, and for buffers on another device.
  bool takes(const Call& call);
  // Enters a collective on host memory into the comparison of calls: ranks must call it at the same place
  // among those on devices.
  void note_host_call(const Call& call);

  // Runs the operation on call.stream, without waiting for the device.
  void run(const Call& call);
  // Runs the operation on another stream, after the work that is on call.stream now.
  std::shared_ptr<DeviceWork> start(const Call& call);
  // Run all calls as one operation. Messages are not allowed among them; start() takes them one by one.
  void run_collectives(std::span<const Call> calls, void* stream);
  std::shared_ptr<DeviceWork> start_collectives(std::span<const Call> calls, void* stream);

  // Makes a stream wait for a message. The host waits until the message is on its own stream.
  void join(DeviceWork& message, void* stream, Deadline deadline);

  // True if operations on the program's streams, whose completion is not tracked, may be running.
  bool may_be_busy() const noexcept { return may_be_busy_; }
  // Collective: makes NCCL's communicator of a group of these ranks; null for color kNcclNoColor.
  std::shared_ptr<NcclCommunicator> split(int color, int key, const NcclSettings& settings);

  // Returns false if the communicator is ending, because NCCL then releases its windows itself.
  bool deregister_window(NcclWindow* window) noexcept;
  // Returns null in a group of one.
  std::shared_ptr<NcclCommunicator> communicator() const {
    return collectives_ ? collectives_->shared_communicator() : nullptr;
  }
  // Throws BACKEND unless the result is success.
  void check_nccl(NcclResult result, const char* function) const;

  // --- Any thread.
  // Checks once for completions, errors and time-outs. Returns after how many nanoseconds to look again.
  int64_t look() noexcept;
  void look_at(DeviceWork& work) noexcept;
  // Makes a stream of the device wait for an event.
  void let_wait(void* stream, const PooledEvent& event) const;
  // Called when the communicator has failed: aborts what runs here. Also called when this rank leaves: then
  // operations run to their end, within the time-out. Does not wait.
  void give_up() noexcept;
  // Wait until the threads that end communicators are done, for all engines of the process, or until the
  // program's communicator is detached.
  static void await_endings(Deadline deadline) noexcept;
  void await_adopted() const noexcept;
  // has_running() is true while works are not known to have ended. destroyed() is the failure that other
  // ranks get if this rank leaves nevertheless.
  bool has_running() noexcept;
  Failure destroyed() const;
  // Collective: waits for running operations and ends NCCL's communicators in an orderly way.
  void finalize();

  // Fails the communicator on all ranks because of an error on this rank. Does not throw.
  void fail_quietly(const Call& call, uint64_t number, const Error& error) noexcept;
  // Notes that a call on this rank has reported the failure.
  void note_told() const noexcept { told_.store(true); }
  // Returns a wait with the given time-out; 0 means the communicator's.
  NcclWait patience(int timeout_ms) const;

  // Returns the communicator's failure, with details that only this rank knows.
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
  const std::shared_ptr<PublishedCalls> board_;        // null in a group of one
  const LocalMembers local_;
  const bool on_one_host_;
  Stream stream_;
  uint64_t alone_calls_ = 0;  // counted in a group of one only
  uint64_t splits_ = 0;
  bool may_be_busy_ = false;
  StatsTable stats_;
  std::atomic<Ending> ending_{Ending::kNot};
  std::atomic<bool> aborted_{false};         // a communicator of NCCL was aborted
  std::atomic<bool> cause_recorded_{false};  // for the first operation that failed
  std::atomic<bool> finalized_{false};
  std::atomic<bool> has_graphs_{false};    // operations were captured
  std::atomic<bool> concluding_{false};    // a thread is finding the cause
  std::atomic<int32_t> native_code_{0};    // NCCL's code of this rank's own failure
  mutable std::atomic<bool> told_{false};  // a call on this rank has reported the failure

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<DeviceWork>> pending_ DSC_GUARDED_BY(mutex_);  // in the order of their calls
  std::map<std::pair<OpKind, int32_t>, std::unique_ptr<DeviceLink>> links_ DSC_GUARDED_BY(mutex_);
  std::multiset<int64_t> due_ns_ DSC_GUARDED_BY(mutex_);  // when calls that end communicators should return
  int64_t next_error_look_ns_ = 0;                        // used by the watch
  int64_t error_seen_ns_ = 0;                             // used by the watch
  std::atomic<uint64_t> latest_call_{0};                  // latest call on the device that was not captured
  uint64_t awaited_call_ = 0;  // used by the watch: a call for which others may be late, and since when
  int64_t awaited_since_ns_ = 0;
};

}  // namespace dsc
