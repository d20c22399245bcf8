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
  std::string name;        // empty: made from the parent's
  int32_t timeout_ms = 0;  // 0: the parent's
  // On devices; 0 and empty leave the choice to NCCL and CUDA.
  int32_t min_ctas = 0;
  int32_t max_ctas = 0;
  int32_t stream_priority = 0;  // lower is more urgent
  std::string net_name = {};
};

// The members of a communicator that are on this host.
struct LocalMembers {
  std::shared_ptr<Group> group;
  std::vector<int32_t> ranks;  // in the communicator, by member
};

// What a rank of another host says when it is asked.
struct Answer {
  int32_t rank = -1;
  std::string text;
};

// What start-up found out, for questions that come later.
struct WorldInfo {
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string master_addr;
  int master_port = 0;
  std::string source;
  std::string report;
  bool progress_thread = true;  // else whoever waits or asks drives everything
};

struct OpStats {
  std::string operation;
  uint64_t bytes_class = 0;
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t waiting_ns = 0;
  uint64_t moving_ns = 0;
};

// Calls of one communicator come from one thread at a time, except where it says any thread.
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
  virtual int32_t device() const noexcept { return -1; }  // that it is bound to; -1: none
  virtual const DeviceContext* device_context() const noexcept { return nullptr; }  // of that device
  virtual LocalMembers local_members() const { return {}; }
  virtual const std::string& name() const noexcept = 0;
  virtual int global_rank(int group_rank) const = 0;
  virtual int group_rank(int global_rank) const noexcept = 0;

  // Why this communicator cannot run an operation, in words that fit after its name; nothing if it can.
  virtual std::optional<std::string> unsupported_reason(const Call&) const { return std::nullopt; }

  // Runs an operation to its end; throws its failure. The arguments were checked before.
  virtual void run(const Call& call) = 0;
  // Queues an operation; the progress thread drives it, or progress() does. Any thread, when the caller keeps
  // the order.
  virtual std::shared_ptr<Work> start(const Call& call) = 0;
  // The calls between dsc_batch_begin() and dsc_batch_end().
  virtual void run_group(const std::vector<Call>& calls);
  virtual std::shared_ptr<Work> start_group(const std::vector<Call>& calls);

  // What was called so far does not count in the numbers of operations. All ranks call it at one point.
  virtual void restart_numbers() noexcept {}

  // Collective. Null for color -1, and for a rank that is not listed.
  virtual std::shared_ptr<Comm> split(int32_t color, int32_t key, const GroupOptions& options) = 0;
  virtual std::shared_ptr<Comm> create_group(std::span<const int32_t> ranks, const GroupOptions& options) = 0;

  // Collective: a group of the same ranks that uses an ncclComm_t of the program's, in its order.
  virtual std::shared_ptr<Comm> adopt_nccl(void* nccl_comm, const GroupOptions& options);

  // Collective: a group of the same ranks whose messages never wait for this one's. It is revoked and left
  // together with this one.
  virtual std::shared_ptr<Comm> make_channel(const std::string& name) = 0;

  // Collective among the ranks that still live, also after a failure: the bitwise AND of their flags, and a
  // group of them. missing(), from any thread: whom the latest of these calls missed, equally on all.
  virtual int32_t agree_on(int32_t flags) = 0;
  virtual std::shared_ptr<Comm> shrink(const GroupOptions& options) = 0;
  virtual std::vector<int32_t> missing() const = 0;
  // What the latest shrink() made, if somebody still has it. Any thread.
  virtual std::shared_ptr<Comm> successor() const noexcept { return nullptr; }

  // How this rank answers what ranks of other hosts ask, in at most 512 bytes. Called on a thread that must
  // not wait.
  using QueryHandler = std::function<std::string(const std::string& question)>;
  virtual void on_status_query(const QueryHandler&) {}
  // The first rank of each other host, of at most 64, or one rank. The question has at most 64 bytes, and is
  // about an operation of that number: one rank asks for all of the group that want to know, which hear
  // nothing but its failure. Any thread; takes at most about three seconds.
  virtual std::vector<Answer> query_hosts(uint64_t, const std::string&) { return {}; }
  virtual std::vector<Answer> query_rank(int32_t, const std::string&) { return {}; }

  // Collective: zeroed memory that all ranks reach. Freed by release_memory() of comm/memory.hpp, from any
  // thread.
  virtual void* allocate_memory(size_t bytes) = 0;
  // Collective: the same of the device that it is bound to.
  virtual void* allocate_on_device(size_t bytes);

  // Drives the queued operations of this rank in all groups of its world, on the calling thread: until one of
  // them completes, none is left, or the deadline has passed. True when none is left. Any thread.
  virtual bool progress(Deadline deadline) = 0;

  virtual int timeout_ms() const noexcept = 0;             // any thread
  virtual void set_timeout_ms(int timeout) noexcept = 0;   // any thread
  virtual void revoke(const Failure& cause) noexcept = 0;  // any thread: ends it on all ranks
  virtual void abort() noexcept = 0;                       // any thread: revokes it, with this rank as cause
  virtual void leave() noexcept = 0;                       // any thread: this rank takes no further part
  // This rank finalizes the world: members that wait for it hear so. Operations of this rank that run go on,
  // and then so does the group. Any thread.
  virtual void leave_if_idle() noexcept = 0;
  virtual bool finalized() const noexcept { return false; }  // any thread
  virtual void finalize() = 0;                               // collective
  virtual void end_world() noexcept = 0;           // any thread: this rank leaves all groups of its world
  virtual Failure failure() const = 0;             // any thread
  virtual bool revoked() const noexcept = 0;       // any thread
  virtual bool is_over() const noexcept = 0;       // any thread: finalized, left, or its world has ended
  virtual std::vector<OpStats> stats() const = 0;  // any thread
  virtual std::string trace(
      const char* reason) const = 0;           // any thread: of all groups of its world on this rank
  virtual std::string trace_path() const = 0;  // any thread: empty without a folder for traces
  virtual std::string tuning() const = 0;      // any thread: the sizes by which data moves, KEY=BYTES,...
  virtual const WorldInfo& world_info() const noexcept;  // any thread

  // Never null. A group that works for another one may share its ledger.
  std::shared_ptr<NonFiniteLedger> nonfinite = std::make_shared<NonFiniteLedger>(NonFiniteCheck::kOff);

  // Operations that were called since dsc_batch_begin(), not started yet; null outside.
  std::unique_ptr<std::vector<Call>> coalesced;

  // Set while a call is inside: one thread at a time per communicator.
  std::atomic<bool> in_call{false};

 private:
  static uint64_t next_serial() noexcept {
    static std::atomic<uint64_t> latest{0};
    return latest.fetch_add(1) + 1;
  }
};

}  // namespace dsc
