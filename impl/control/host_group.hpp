// The ranks of a job on this host, as one of them sees them: their identity, whether they are alive, and what
// they share. Local ranks are indices among the ranks of the host; on a single host they equal the global
// ranks.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "bootstrap/meeting.hpp"
#include "bootstrap/rendezvous.hpp"
#include "control/group_record.hpp"
#include "control/iteration_source.hpp"
#include "control/job_event.hpp"
#include "control/memory.hpp"
#include "control/process.hpp"

namespace dsc {

class Group;

enum class ItemKind : uint32_t { kProcessPage = 1, kPidfd = 2, kGroupSegment = 3, kMemory = 4 };

// A process with ranks of this host, possibly this one.
struct PeerProcess {
  std::string endpoint;
  int64_t pid = 0;
  std::vector<int32_t> ranks;
  bool own = false;
  std::shared_ptr<Mapping> mapping;
  ProcessPage* page = nullptr;
  UniqueFd pidfd;
  std::atomic<dsc_result_t> gone{DSC_OK};   // PEER_DEAD or PEER_LEFT once its end was observed
  std::atomic<int64_t> unresponsive_ns{0};  // how long its heartbeat has not changed; 0 while it does
  uint64_t last_beat = 0;                   // monitor's thread only
  int64_t last_change_ns = 0;               // monitor's thread only
};

// Selects how much is recorded and where traces are written.
struct TraceSettings {
  size_t entries = 2000;  // capacity of each group's recorder, in operations
  std::string folder;     // where traces are written automatically; empty: nowhere
};

// Settings of a HostGroup.
struct HostGroupSettings {
  MeetingSettings meeting;
  int32_t stall_timeout_ms = 30'000;
  TuningOverrides tuning;
  TraceSettings trace;
};

// The host group of one rank. The monitor calls it on its thread.
class HostGroup : public MonitorClient, public std::enable_shared_from_this<HostGroup> {
 public:
  using Meet = std::function<MeetingResult(const MeetingSettings&)>;

  // Blocks until all ranks have arrived, and the page and pidfd of every process have been received.
  static std::shared_ptr<HostGroup> join(const HostGroupSettings& settings, const Meet& meet_ranks = meet);
  ~HostGroup() override;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(members_.size()); }
  const std::vector<Member>& members() const noexcept { return members_; }
  const JobLayout& layout() const noexcept { return layout_; }
  int32_t global_rank(int rank) const noexcept { return members_[static_cast<size_t>(rank)].rank; }
  const Nonce& nonce() const noexcept { return nonce_; }
  Process& process() const noexcept { return process_; }
  PeerProcess& process_of(int local_rank) const noexcept {
    return *peers_[peer_of_rank_[static_cast<size_t>(local_rank)]];
  }
  // Returns whether there are more ranks than processors on which they may run; equal on all ranks.
  bool oversubscribed() const noexcept { return oversubscribed_; }
  int spins() const noexcept { return spin_limit(oversubscribed_); }
  Tuning tuning_of(int members) const { return choose_tuning(members, oversubscribed_, tuning_overrides_); }
  MemoryRegistry& memory() const noexcept { return *memory_; }
  uint32_t library_version() const noexcept { return library_version_; }
  size_t trace_entries() const noexcept { return trace_.entries; }
  const std::string& trace_folder() const noexcept { return trace_.folder; }

  // Publishes, withdraws and fetches descriptors of ranks of this host.
  void publish(ItemKind kind, uint64_t id, int fd);
  void withdraw(ItemKind kind, uint64_t id) noexcept;
  UniqueFd fetch(int local_rank, const std::string& owner, ItemKind kind, uint64_t id, Deadline deadline,
                 const std::function<void()>& check) const;

  // Returns whether a process has not run for so long that it counts as failed.
  bool is_stalled(const PeerProcess& peer) const noexcept {
    return stall_timeout_ms_ > 0 && peer.unresponsive_ns.load() >= stall_timeout_ms_ * kNsPerMs;
  }

  // Returns the ranks of this host whose processes count as failed because they are stalled, as events for
  // other hosts. Any thread.
  std::vector<RankGone> stalled_ranks() const;

  // Adds a group, which is told when one of its processes ends or stops.
  void enroll(const std::shared_ptr<Group>& group);
  std::vector<std::shared_ptr<Group>> groups();
  // Records of all groups, and of failed ones that were destroyed: the first, and the latest 15.
  std::vector<GroupRecord> records();
  // Adds a reducer whose iterations are part of traces while it lives, and afterwards if the latest is
  // unfinished.
  void add_iterations(std::shared_ptr<const IterationSource> source);
  std::vector<RecordedIteration> iterations() const;
  // Announces that this rank finalizes the world, so that members of its other groups do not wait for it.
  void tell_of_finalize(uint64_t except) noexcept;
  // Returns whether tell_of_finalize() has announced it. Groups whose communicators are made later ask this.
  bool finalizes() noexcept;

  // Called when a group has failed: if there is a folder for traces, this rank's trace is written soon. Any
  // thread.
  void on_failure(const Group& group) noexcept;

  // The world is about to end: from now on late arrivals at its name are asked to wait instead of being
  // rejected.
  void begin_closing(bool failed) noexcept;
  // While the world is tentative (it may still fail before it is returned to the user), late arrivals are
  // also asked to wait.
  void set_tentative(bool tentative) noexcept { tentative_.store(tentative); }
  void close_name() noexcept;
  // Keeps the job's store until the name is closed.
  void hold_name(const std::shared_ptr<JobStore>& job) noexcept;

  // Number of operations of this rank that run on threads of an engine, outside the queues of this host.
  std::atomic<int> outside_operations{0};

  // Announces that this rank takes part in no further operation of any group.
  void end() noexcept;
  bool ended() const noexcept { return ended_.load(std::memory_order_relaxed); }

  bool on_readable(int fd) noexcept override;
  void on_heartbeat(int64_t now, bool after_gap) noexcept override;

 private:
  enum class Closing { kNo, kEnding, kFailed };

  HostGroup(const HostGroupSettings& settings, MeetingResult met);
  void find_processes();
  bool has_failed() noexcept;
  void keep_record(const Group& group);
  void fetch_pages(Deadline deadline);
  void probe_processes() const;
  static void await_end(const PeerProcess& peer);
  void count_all_processors();
  void watch();
  ItemKey key(int local_rank, ItemKind kind, uint64_t id) const;
  void on_end(PeerProcess& peer);
  void look_at(PeerProcess& peer, int64_t now, bool after_gap);

  int rank_ = -1;
  const int32_t stall_timeout_ms_;
  const uint32_t library_version_;
  const TuningOverrides tuning_overrides_;
  const TraceSettings trace_;
  std::atomic<bool> enrolled_{false};  // set once the trace writer knows this group; read by the monitor
  Process& process_;
  Nonce nonce_;
  std::vector<Member> members_;
  const JobLayout layout_;
  std::vector<std::unique_ptr<PeerProcess>> peers_;
  std::vector<size_t> peer_of_rank_;
  bool oversubscribed_ = false;
  const std::shared_ptr<MemoryRegistry> memory_ = std::make_shared<MemoryRegistry>();
  std::vector<int> watched_fds_;

  Mutex name_mutex_;
  UniqueFd listener_ DSC_GUARDED_BY(name_mutex_);
  HeldName held_ DSC_GUARDED_BY(name_mutex_);
  std::shared_ptr<JobStore> job_ DSC_GUARDED_BY(name_mutex_);
  Closing closing_ DSC_GUARDED_BY(name_mutex_) = Closing::kNo;
  std::atomic<bool> tentative_{false};
  std::atomic<bool> ended_{false};

  mutable Mutex groups_mutex_;
  std::vector<std::weak_ptr<Group>> groups_ DSC_GUARDED_BY(groups_mutex_);
  std::vector<std::shared_ptr<const IterationSource>> reducers_ DSC_GUARDED_BY(groups_mutex_);
  std::vector<GroupRecord> failed_records_ DSC_GUARDED_BY(groups_mutex_);  // with a folder for traces only
  bool finalizes_ DSC_GUARDED_BY(groups_mutex_) = false;
  std::string first_failure_ DSC_GUARDED_BY(groups_mutex_);  // of any group; empty if none has failed
};

}  // namespace dsc
