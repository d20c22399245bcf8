// The communicator: a group of ranks with its engines, its groups and its memory.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/engine.hpp"

namespace dsc {

// One thread at a time may call a communicator, except for functions marked "any thread".
class IterationSource;

class Comm final {
 public:
  explicit Comm(Engines engines);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // Differs between any two communicators of this process, also across worlds.
  const uint64_t serial = next_serial();

  int rank() const noexcept { return state_.rank(); }
  int size() const noexcept { return state_.size(); }
  uint64_t id() const noexcept { return state_.id(); }
  const std::string& name() const noexcept { return state_.name(); }
  int global_rank(int group_rank) const;
  // Throws INVALID_ARG if `rank` is not a rank of this group. `name` is the caller's argument. For a rank of
  // the world, the text says which rank of the group it is.
  void check_rank(const char* name, int rank) const;
  int group_rank(int global_rank) const noexcept { return state_.group_rank(global_rank); }
  // The ranks on this host, including this one.
  const std::vector<int32_t>& local_ranks() const noexcept { return state_.local().ranks; }
  const WorldInfo& world_info() const noexcept { return *state_.info(); }  // any thread

  // Capabilities.
  int32_t backend() const noexcept;                      // dsc_backend_t
  int32_t device() const noexcept;                       // -1: not bound to a device
  const DeviceContext* device_context() const noexcept;  // null likewise
  // Returns the device on which memory lies, or -1 for host memory. Any thread.
  int32_t device_of(const void* memory) const;
  bool checks_nonfinite() const noexcept { return group_->checks_nonfinite(); }
  // Returns why operations on the device cannot run a call, as a text to follow the operation's name;
  // nullopt if they can.
  std::optional<std::string> unsupported_reason(const Call& call) const;

  // Returns whether the buffers of a call are on the device. Throws INVALID_ARG like DeviceEngine::takes().
  bool is_on_device(const Call& call);

  // Runs an operation to its end; throws its failure. The caller has checked the arguments.
  void run(const Call& call) { engine_for(call).run(call); }
  // Queues an operation, which the progress thread or progress() drives. Any thread, if the caller keeps
  // the calls in order.
  std::shared_ptr<Work> start(const Call& call) { return engine_for(call).start(call); }
  // Run or start the calls between dsc_batch_begin() and dsc_batch_end().
  void run_batch(const std::vector<Call>& calls);
  std::shared_ptr<Work> start_batch(const std::vector<Call>& calls);

  // Collective. Return null for color -1 and for a rank that is not listed.
  std::shared_ptr<Comm> split(int32_t color, int32_t key, const GroupOptions& options);
  std::shared_ptr<Comm> create_group(std::span<const int32_t> ranks, const GroupOptions& options);
  // Collective: makes a group of the same ranks. It uses a device library's communicator, which the program
  // has made.
  std::shared_ptr<Comm> adopt(void* communicator, const GroupOptions& options);
  // Collective: makes a group of the same ranks whose messages never wait for those of this one. It is
  // revoked and left together with this communicator.
  std::shared_ptr<Comm> make_channel(const std::string& name);

  // Collective among the living ranks, also after a failure. agree_on() returns the bitwise AND of their
  // flags, shrink() makes a group of them. missing() returns the ranks that did not take part in the latest
  // of these calls, equally on all ranks, and may be called from any thread.
  int32_t agree_on(int32_t flags);
  std::shared_ptr<Comm> shrink(const GroupOptions& options);
  std::vector<int32_t> missing() const { return state_.missing(); }
  // Returns the communicator that the latest shrink() made, or null if it no longer exists. Any thread.
  std::shared_ptr<Comm> successor() const noexcept;

  // Collective: returns zeroed memory that the ranks of each host share, or memory of the device.
  // release_memory() of comm/memory.hpp frees it, from any thread.
  void* allocate_memory(size_t bytes);
  void* allocate_on_device(size_t bytes);

  // Drives the queued operations of this rank in all groups of its world on the calling thread, until one
  // of them completes, none is left, or the deadline has passed. Returns true if none is left. Any thread.
  bool progress(Deadline deadline) { return group_->progress(deadline); }

  // --- Any thread, except finalize(), which is collective.
  int timeout_ms() const noexcept { return state_.timeout_ms(); }
  void set_timeout_ms(int timeout) noexcept { state_.set_timeout_ms(timeout); }
  void revoke(const Failure& cause) noexcept;  // fails it on all ranks
  void abort() noexcept;                       // revokes it, with this rank as cause
  void leave() noexcept;                       // this rank takes part in no further operation
  bool finalized() const noexcept { return state_.finalized(); }
  void finalize();
  void end_world() noexcept;  // this rank leaves all groups of its world
  Failure failure() const { return device_ ? device_->failure() : group_->failure(); }
  bool revoked() const noexcept { return group_->revoked(); }
  std::vector<OpStats> stats() const;
  std::string trace(const char* reason) const;  // all groups of its world on this rank
  std::string trace_path() const;               // empty without a folder for traces
  // From now on traces show the iterations of this reducer.
  void trace_iterations(const std::shared_ptr<const IterationSource>& source);
  std::string tuning() const;  // the sizes by which data moves, KEY=BYTES,...

  // Never null; see CommState.
  const std::shared_ptr<Scratch>& scratch() const noexcept { return state_.scratch; }
  const std::shared_ptr<NonFiniteLedger>& nonfinite() const noexcept { return state_.nonfinite; }
  void share_nonfinite(const Comm& other) noexcept { state_.nonfinite = other.state_.nonfinite; }

  // Operations since dsc_batch_begin(), not started yet; null outside a batch.
  std::unique_ptr<std::vector<Call>> coalesced;

  // True while a call uses this communicator, so that a second thread can be refused.
  std::atomic<bool> in_call{false};

 private:
  static uint64_t next_serial() noexcept;
  Engine& engine_for(const Call& call) {
    if (!device_) return *group_;
    return engine_beside_device(call);
  }
  Engine& engine_beside_device(const Call& call);
  bool is_on_device(const std::vector<Call>& calls);
  void note_step(OpKind kind);
  std::shared_ptr<Comm> open(int32_t color, const GroupOptions& options, const DeviceEngine::MakeGroup& make);

  const std::shared_ptr<GroupEngine> group_;
  CommState& state_;  // of group_
  const std::shared_ptr<DeviceEngine> device_;
  mutable Mutex mutex_;
  std::weak_ptr<Comm> successor_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
