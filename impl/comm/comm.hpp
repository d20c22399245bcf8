// A communicator: a group of ranks with its engines, its groups and its memory.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/engine.hpp"

namespace dsc {

class IterationSource;

// Only one thread at a time may call a communicator, except for functions marked "any thread".
class Comm final {
 public:
  explicit Comm(Engines engines);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // A number that is different for each communicator of this process, also across worlds.
  const uint64_t serial = next_serial();

  int rank() const noexcept { return state_.rank(); }
  int size() const noexcept { return state_.size(); }
  uint64_t id() const noexcept { return state_.id(); }
  const std::string& name() const noexcept { return state_.name(); }
  int global_rank(int group_rank) const;
  // Throws INVALID_ARG if `rank` is not a rank of this group. `name` is the name of the caller's argument. If
  // `rank` is a rank of the world, the message also gives the corresponding rank of this group.
  void check_rank(const char* name, int rank) const;
  int group_rank(int global_rank) const noexcept { return state_.group_rank(global_rank); }
  // Returns the ranks of this group that are on this host, including this rank.
  const std::vector<int32_t>& local_ranks() const noexcept { return state_.local().ranks; }
  const WorldInfo& world_info() const noexcept { return *state_.info(); }  // any thread

  // Capabilities.
  int32_t backend() const noexcept;                      // dsc_backend_t
  int32_t device() const noexcept;                       // -1 if the communicator is not bound to a device
  const DeviceContext* device_context() const noexcept;  // null if the communicator is not bound to a device
  // Returns the device of some memory, or -1 for host memory. Any thread.
  int32_t device_of(const void* memory) const;
  bool checks_nonfinite() const noexcept { return group_->checks_nonfinite(); }
  // Returns why a call cannot run; nullopt if it can. The device engine decides, or the group engine if there
  // is no device. The text continues a sentence that begins with the operation's name.
  std::optional<std::string> unsupported_reason(const Call& call) const;

  // Returns true if the buffers of a call are on the device. Throws INVALID_ARG like DeviceEngine::takes().
  bool is_on_device(const Call& call);

  // Runs an operation to its end, and throws if it fails. The caller has checked the arguments.
  void run(const Call& call) { engine_for(call).run(call); }
  // Queues an operation. The progress thread or progress() drives it. Any thread may call this, if the caller
  // keeps calls in the same order on all ranks.
  std::shared_ptr<Work> start(const Call& call) { return engine_for(call).start(call); }
  // Run or start all calls that were made between dsc_batch_begin() and dsc_batch_end().
  void run_batch(const std::vector<Call>& calls);
  std::shared_ptr<Work> start_batch(const std::vector<Call>& calls);

  // Collective. split() returns null for color -1, and create_group() returns null for a rank that is not
  // listed.
  std::shared_ptr<Comm> split(int32_t color, int32_t key, const GroupOptions& options);
  std::shared_ptr<Comm> create_group(std::span<const int32_t> ranks, const GroupOptions& options);
  // Collective. Makes a group of the same ranks that uses an existing communicator of a device library.
  std::shared_ptr<Comm> adopt(void* communicator, const GroupOptions& options);
  // Collective. Makes an internal group of the same ranks. Its messages never wait for messages of this
  // communicator. If this communicator is revoked or left, so is the channel.
  std::shared_ptr<Comm> make_channel(const std::string& name);

  // Collective among the surviving ranks; may also be called after a failure. agree_on() returns the bitwise
  // AND of their flags, and shrink() makes a group of them. missing() returns the ranks that did not take
  // part in the latest of these calls. Its result is the same on all ranks, and any thread may call it.
  int32_t agree_on(int32_t flags);
  std::shared_ptr<Comm> shrink(const GroupOptions& options);
  std::vector<int32_t> missing() const { return state_.missing(); }
  // Returns the communicator that the latest shrink() made, or null if it no longer exists. Any thread.
  std::shared_ptr<Comm> successor() const noexcept;

  // Collective. The first function returns zeroed memory that the ranks of each host share, the second
  // returns memory of the device. release_memory() of comm/memory.hpp frees both, from any thread.
  void* allocate_memory(size_t bytes);
  void* allocate_on_device(size_t bytes);
  // Collective. unregister_memory() of comm/memory.hpp undoes it, from any thread.
  void register_memory(void* memory, size_t bytes);

  // Drives the queued operations of this rank, in all groups of its world, on the calling thread. Returns
  // when one of them completes, when none remains, or when the deadline has passed. Returns true if none
  // remains. Any thread.
  bool progress(Deadline deadline) { return group_->progress(deadline); }

  // --- Functions for any thread, except finalize(), which is collective.
  int timeout_ms() const noexcept { return state_.timeout_ms(); }
  void set_timeout_ms(int timeout) noexcept { state_.set_timeout_ms(timeout); }
  void revoke(const Failure& cause) noexcept;  // fails the communicator on all ranks
  void abort() noexcept;                       // revokes the communicator; this rank is the cause
  void leave() noexcept;                       // this rank takes part in no more operations
  bool finalized() const noexcept { return state_.finalized(); }
  void finalize();
  void end_world() noexcept;  // this rank leaves all groups of its world
  Failure failure() const { return device_ ? device_->failure() : group_->failure(); }
  bool revoked() const noexcept { return group_->revoked(); }
  std::vector<OpStats> stats() const;
  std::string trace(const char* reason) const;  // covers all groups of its world on this rank
  std::string trace_path() const;               // empty if no folder for traces is set
  // Adds the iterations of a reducer to all later traces.
  void trace_iterations(const std::shared_ptr<const IterationSource>& source);
  std::string tuning() const;  // the sizes that control how data moves, as KEY=BYTES,...

  // Never null; CommState describes these objects.
  const std::shared_ptr<Scratch>& scratch() const noexcept { return state_.scratch; }
  const std::shared_ptr<NonFiniteLedger>& nonfinite() const noexcept { return state_.nonfinite; }
  void share_nonfinite(const Comm& other) noexcept { state_.nonfinite = other.state_.nonfinite; }

  // Operations since dsc_batch_begin() that are not started yet; null outside a batch.
  std::unique_ptr<std::vector<Call>> coalesced;

  // True while a call uses this communicator, to detect calls from a second thread.
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
  CommState& state_;  // the state that group_ owns
  const std::shared_ptr<DeviceEngine> device_;
  mutable Mutex mutex_;
  std::weak_ptr<Comm> successor_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
