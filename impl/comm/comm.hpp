// A communicator: a group of ranks with its queue of operations, its groups and its shared memory.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/nonfinite.hpp"
#include "comm/work.hpp"
#include "control/call.hpp"
#include "control/failure.hpp"

namespace dsc {

class Group;
struct DeviceContext;

struct GroupOptions {
  std::string name;        // empty: derived from the parent's name
  int32_t timeout_ms = 0;  // 0: the parent's
  // The following apply to devices only; 0 and empty leave the choice to NCCL and CUDA.
  int32_t min_ctas = 0;
  int32_t max_ctas = 0;
  int32_t stream_priority = 0;  // lower is more urgent
  std::string net_name = {};
};

// The members of a communicator that are on this host.
struct LocalMembers {
  std::shared_ptr<Group> group;
  std::vector<int32_t> ranks;  // rank in the communicator of each member
};

// The reply of a rank of another host to a status query.
struct Answer {
  int32_t rank = -1;
  std::string text;
};

// Facts that start-up has found out, kept for later calls.
struct WorldInfo {
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string master_addr;
  int master_port = 0;
  std::string source;
  std::string report;
  bool progress_thread = true;  // if false, calls of the program drive all operations
};

struct OpStats {
  std::string operation;
  uint64_t bytes_class = 0;
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t waiting_ns = 0;
  uint64_t moving_ns = 0;
};

// One thread at a time may call a communicator, except for functions marked "any thread".
class Comm {
 public:
  virtual ~Comm() = default;

  // Differs between any two communicators of this process, also after a world has ended and another has
  // begun.
  const uint64_t serial = next_serial();

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual uint64_t id() const noexcept = 0;
  virtual int32_t backend() const noexcept { return DSC_BACKEND_HOST; }
  virtual int32_t device() const noexcept { return -1; }  // -1: not bound to a device
  virtual const DeviceContext* device_context() const noexcept { return nullptr; }  // null: no device
  virtual LocalMembers local_members() const { return {}; }
  virtual const std::string& name() const noexcept = 0;
  virtual int global_rank(int group_rank) const = 0;
  virtual int group_rank(int global_rank) const noexcept = 0;

  // Returns why this communicator cannot run an operation, as a text to follow the operation's name;
  // nullopt if it can.
  virtual std::optional<std::string> unsupported_reason(const Call&) const { return std::nullopt; }

  // Runs an operation to its end; throws its failure. The caller has checked the arguments.
  virtual void run(const Call& call) = 0;
  // Queues an operation, which the progress thread or progress() drives. Any thread, if the caller keeps
  // the calls in order.
  virtual std::shared_ptr<Work> start(const Call& call) = 0;
  // Run or start the calls between dsc_batch_begin() and dsc_batch_end().
  virtual void run_group(const std::vector<Call>& calls);
  virtual std::shared_ptr<Work> start_group(const std::vector<Call>& calls);

  // Numbers the next operation 1, as if there had been none before. All ranks call this at the same point.
  virtual void restart_numbers() noexcept {}

  // Collective. Return null for color -1 and for a rank that is not listed.
  virtual std::shared_ptr<Comm> split(int32_t color, int32_t key, const GroupOptions& options) = 0;
  virtual std::shared_ptr<Comm> create_group(std::span<const int32_t> ranks, const GroupOptions& options) = 0;

  // Collective: makes a group of the same ranks that uses the program's ncclComm_t, in the order of its
  // ranks.
  virtual std::shared_ptr<Comm> adopt_nccl(void* nccl_comm, const GroupOptions& options);

  // Collective: makes a group of the same ranks whose messages never wait for those of this one. It is
  // revoked and left together with this communicator.
  virtual std::shared_ptr<Comm> make_channel(const std::string& name) = 0;

  // Collective among the living ranks, also after a failure. agree_on() returns the bitwise AND of their
  // flags, shrink() makes a group of them. missing() returns the ranks that did not take part in the latest
  // of these calls, equally on all ranks, and may be called from any thread.
  virtual int32_t agree_on(int32_t flags) = 0;
  virtual std::shared_ptr<Comm> shrink(const GroupOptions& options) = 0;
  virtual std::vector<int32_t> missing() const = 0;
  // Returns the communicator that the latest shrink() made, or null if it no longer exists. Any thread.
  virtual std::shared_ptr<Comm> successor() const noexcept { return nullptr; }

  // Sets how this rank answers status queries of other hosts, in at most 512 bytes. The handler runs on a
  // thread that must not wait.
  using QueryHandler = std::function<std::string(const std::string& question)>;
  virtual void on_status_query(const QueryHandler&) {}
  // Send a status query of at most 64 bytes to the first rank of each other host (at most 64 hosts), or to
  // one rank. For each operation number, query_hosts() asks only on the first rank that calls it; on the
  // others it waits for the group's failure and returns nothing. Any thread; takes at most about three
  // seconds.
  virtual std::vector<Answer> query_hosts(uint64_t, const std::string&) { return {}; }
  virtual std::vector<Answer> query_rank(int32_t, const std::string&) { return {}; }

  // Collective: returns zeroed memory that the ranks of each host share. release_memory() of
  // comm/memory.hpp frees it, from any thread.
  virtual void* allocate_memory(size_t bytes) = 0;
  // Collective: the same in memory of the device to which this communicator is bound.
  virtual void* allocate_on_device(size_t bytes);

  // Drives the queued operations of this rank in all groups of its world on the calling thread, until one
  // of them completes, none is left, or the deadline has passed. Returns true if none is left. Any thread.
  virtual bool progress(Deadline deadline) = 0;

  virtual int timeout_ms() const noexcept = 0;             // any thread
  virtual void set_timeout_ms(int timeout) noexcept = 0;   // any thread
  virtual void revoke(const Failure& cause) noexcept = 0;  // any thread: fails it on all ranks
  virtual void abort() noexcept = 0;                       // any thread: revokes it, with this rank as cause
  virtual void leave() noexcept = 0;                       // any thread: this rank takes no further part
  // Called when this rank finalizes the world: tells members that wait for it. Does nothing while
  // operations of this rank are running. Any thread.
  virtual void leave_if_idle() noexcept = 0;
  virtual bool finalized() const noexcept { return false; }  // any thread
  virtual void finalize() = 0;                               // collective
  virtual void end_world() noexcept = 0;           // any thread: this rank leaves all groups of its world
  virtual Failure failure() const = 0;             // any thread
  virtual bool revoked() const noexcept = 0;       // any thread
  virtual bool is_over() const noexcept = 0;       // any thread: finalized, left, or its world has ended
  virtual std::vector<OpStats> stats() const = 0;  // any thread
  virtual std::string trace(
      const char* reason) const = 0;           // any thread: all groups of its world on this rank
  virtual std::string trace_path() const = 0;  // any thread: empty without a folder for traces
  virtual std::string tuning() const = 0;      // any thread: the sizes by which data moves, KEY=BYTES,...
  virtual const WorldInfo& world_info() const noexcept;  // any thread

  // Never null. An internal group may share the ledger of the communicator for which it works.
  std::shared_ptr<NonFiniteLedger> nonfinite = std::make_shared<NonFiniteLedger>(NonFiniteCheck::kOff);

  // Operations that were called since dsc_batch_begin() and are not started yet; null outside a batch.
  std::unique_ptr<std::vector<Call>> coalesced;

  // True while a call uses this communicator, so that a second thread can be refused.
  std::atomic<bool> in_call{false};

 private:
  static uint64_t next_serial() noexcept {
    static std::atomic<uint64_t> latest{0};
    return latest.fetch_add(1) + 1;
  }
};

}  // namespace dsc
