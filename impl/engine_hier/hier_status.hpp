// What each rank did last. Each rank remembers its latest operation and answers questions of other hosts
// about it. A rank that has waited long for others asks them, so that a log line or a time-out can say what
// they are doing.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "comm/engine.hpp"
#include "control/call.hpp"
#include "control/layout.hpp"
#include "engine_hier/hier_layout.hpp"
#include "engine_hier/hier_world.hpp"

namespace dsc {

// The status of one communicator. Any thread may call the functions. Rank 0 serves the store that carries the
// questions, so nothing is asked while rank 0 is unresponsive. Asking takes at most about one second.
class HierStatus {
 public:
  // The communicator owns the arguments, and sets `has_failed` when its group has failed.
  HierStatus(HierWorld& world, const HierLayout& layout, const Group& host, const CommState& state,
             const std::atomic<bool>& has_failed) noexcept
      : world_(world), layout_(layout), host_(host), state_(state), has_failed_(has_failed) {}

  // note_begin() notes that the latest operation of this rank begins. note_end() notes that an operation
  // ends, which may be an earlier one.
  void note_begin(const Call& call, uint64_t sequence) noexcept;
  void note_end(const Call& call, uint64_t sequence) noexcept;

  // While such an object exists, this rank waits in a collective for other ranks of its host. Other hosts,
  // which wait for the leader, can then learn which ranks the leader is waiting for.
  class HostWait {
   public:
    HostWait(HierStatus& status, uint64_t sequence) noexcept : status_(status) {
      status_.host_wait_.store(sequence);
    }
    ~HostWait() { status_.host_wait_.store(0); }
    HostWait(const HostWait&) = delete;
    HostWait& operator=(const HostWait&) = delete;

   private:
    HierStatus& status_;
  };

  void set_handler(const GroupEngine::QueryHandler& handler);
  // Answers a status query of another host without waiting; an empty question asks what this rank did last.
  std::string answer(const std::string& question) const;

  // See GroupEngine.
  std::vector<Answer> query_hosts(uint64_t sequence, const std::string& question) const;
  std::vector<Answer> query_rank(int32_t rank, const std::string& question) const;

  // An operation in which a thread waits for other hosts. Only that thread uses it.
  struct Waiting {
    OpKind kind = OpKind::kBarrier;
    uint64_t sequence = 0;
    int64_t since_ns = 0;  // 0: before the first operation
    bool reported = false;
  };
  // Logs which ranks are late and what they did last, once per operation.
  void report_late(Waiting& waiting, const std::vector<int32_t>& ranks) const;
  // Adds to a time-out which ranks are missing and what they did last.
  void explain_time_out(const Call& call, uint64_t sequence, bool has_met, Failure& cause) const;

 private:
  std::string describe_latest() const;
  bool rank_0_is_unresponsive() const { return world_.unresponsive_ns(0).has_value(); }
  std::vector<Answer> ask(std::span<const int32_t> ranks, const std::string& question,
                          Deadline deadline) const;
  std::string missing_on_host(uint64_t sequence) const;
  std::vector<int32_t> read_missing(int host, const std::string& answer) const;
  struct Late {
    std::vector<int32_t> ranks;
    std::string text;  // such as "rank 2 waits for rank 3 of its host; "; empty if there is nothing to add
  };
  Late find_late(std::span<const int32_t> ranks, uint64_t sequence) const;
  std::string describe_late(const Call& call, bool has_met, std::span<const int32_t> ranks) const;
  std::string latest_of(std::span<const int32_t> ranks, Deadline deadline) const;
  void await_failure(int timeout_ms) const;

  HierWorld& world_;
  const HierLayout& layout_;
  const Group& host_;
  const CommState& state_;
  const std::atomic<bool>& has_failed_;
  std::atomic<uint64_t> host_wait_{0};  // sequence number of the collective of a HostWait, or 0
  mutable Mutex mutex_;
  struct {
    CallFields fields{};
    char note[40] = {};
    uint64_t sequence = 0;
    bool running = false;
  } latest_ DSC_GUARDED_BY(mutex_);
  GroupEngine::QueryHandler handler_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
