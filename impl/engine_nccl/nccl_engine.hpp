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
#include "comm/engine.hpp"
#include "engine_nccl/device_link.hpp"
#include "engine_nccl/device_work.hpp"
#include "engine_nccl/device_world.hpp"
#include "engine_nccl/operations.hpp"
#include "engine_nccl/published_calls.hpp"

namespace dsc {

// The arguments of a NcclEngine.
struct NcclParts {
  DeviceWorld world;
  std::shared_ptr<GroupEngine> host;               // has the same ranks
  std::shared_ptr<NcclCommunicator> communicator;  // null in a group of one
  std::shared_ptr<PublishedCalls> board;
  NcclSettings settings;
  int stream_priority = 0;
};

class NcclEngine final : public DeviceEngine, public std::enable_shared_from_this<NcclEngine> {
 public:
  // Collective among the ranks of `host`: makes the device's part of its world. Throws on all ranks if that
  // fails on one.
  static std::shared_ptr<NcclEngine> create(const DeviceWorld& world,
                                            const std::shared_ptr<GroupEngine>& host, Deadline deadline);
  explicit NcclEngine(NcclParts parts);
  // Throws BACKEND_STUCK once an abort has hung in this process.
  static void expect_usable();
  NcclEngine(const NcclEngine&) = delete;
  NcclEngine& operator=(const NcclEngine&) = delete;

  std::optional<std::string> unsupported_reason(const Call& call) const override {
    return dsc::unsupported_reason(world_.nccl, call);
  }
  const DeviceContext& context() const noexcept override { return world_.gpu; }
  bool takes(const Call& call) override;
  void note_host_call(const Call& call) override;
  // Runs the operation on call.stream, without waiting for the device.
  void run(const Call& call) override;
  // Runs the operation on another stream, after the work that is on call.stream now.
  std::shared_ptr<Work> start(const Call& call) override { return start_work(call); }
  void run_batch(std::span<const Call> calls) override;
  std::shared_ptr<Work> start_batch(std::span<const Call> calls) override;
  void* allocate(size_t bytes) override;
  Engines make_group(const MakeGroup& make, int32_t color, const GroupOptions& options) override;
  Engines shrink(const GroupOptions& options) override;
  Engines adopt(void* communicator, const GroupOptions& options) override;
  // True while works are not known to have ended.
  bool has_running() noexcept override;
  // Waits for running operations and ends NCCL's communicators in an orderly way.
  void finalize() override;
  Failure failure() const override;
  void give_up() noexcept override;
  void await_adopted() const noexcept override;

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

  // Fails the communicator on all ranks because of an error on this rank. Does not throw.
  void fail_quietly(const Call& call, uint64_t number, const Error& error) noexcept;
  // Notes that a call on this rank has reported the failure.
  void note_told() const noexcept { told_.store(true); }
  // Returns a wait with the given time-out; 0 means the communicator's.
  NcclWait patience(int timeout_ms) const;

  const DeviceWorld& world() const noexcept { return world_; }
  const NcclSettings& settings() const noexcept { return settings_; }
  int stream_priority() const noexcept { return stream_priority_; }
  const Device& device() const noexcept { return *world_.nccl.device; }
  GroupEngine& host() const noexcept { return *host_; }

 private:
  int place_of(const Call& call, const void* buffer);
  enum class Ending { kNot, kEnding, kStuck, kEnded };

  void check_usable(const Call& call) const;
  [[noreturn]] void refuse(const Call& call) const;
  [[noreturn]] void refuse_difference(const Call& call, uint64_t number, const BoardDifference& difference,
                                      DeviceRecords* records);
  uint64_t show_all(std::span<const Call> calls, DeviceRecords& records);
  std::shared_ptr<DeviceWork> start_work(const Call& call);
  // Run all calls as one operation. Messages are not allowed among them; start() takes them one by one.
  void run_collectives(std::span<const Call> calls, void* stream);
  std::shared_ptr<DeviceWork> start_collectives(std::span<const Call> calls, void* stream);
  template <typename Start>
  void start_whole(std::span<const Call> calls, const Start& start);
  void join(DeviceWork& message, void* stream, Deadline deadline);
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

  // nccl_groups.cpp
  static Engines finish(const DeviceWorld& world, std::shared_ptr<GroupEngine> host,
                        std::shared_ptr<NcclCommunicator> communicator, const GroupOptions& options,
                        Deadline deadline);
  std::shared_ptr<NcclCommunicator> split_communicator(const GroupEngine* child, int32_t color,
                                                       const GroupOptions& options);
  std::shared_ptr<NcclCommunicator> split(int color, int key, const NcclSettings& settings);

  // nccl_engine_watch.cpp
  static void await_endings(Deadline deadline) noexcept;
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

  // nccl_engine_late.cpp
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
  const std::shared_ptr<GroupEngine> host_;
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
