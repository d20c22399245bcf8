// The ranks of a job on this host, as one of them sees them: their identity, whether they are alive, and what
// they share. Local ranks are indices among the ranks of this host. On a single host they equal the global
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
#include "control/peer_memory.hpp"
#include "control/process.hpp"

namespace dsc {

class Group;

enum class ItemKind : uint32_t { kProcessPage = 1, kPidfd = 2, kGroupSegment = 3, kMemory = 4 };

// A process with ranks of this host. It may be this process.
struct PeerProcess {
  std::string endpoint;
  int64_t pid = 0;
  std::vector<int32_t> ranks;
  bool own = false;
  std::shared_ptr<Mapping> mapping;
  ProcessPage* page = nullptr;
  UniqueFd pidfd;
  PeerMemory memory;
  std::atomic<dsc_result_t> gone{DSC_OK};   // PEER_DEAD or PEER_LEFT once its end has been observed
  std::atomic<int64_t> unresponsive_ns{0};  // time since its heartbeat last changed; 0 while it changes
  uint64_t last_beat = 0;                   // used only by the monitor's thread
  int64_t last_change_ns = 0;               // used only by the monitor's thread
};

// Selects how much is recorded and where traces are written.
struct TraceSettings {
  size_t entries = 2000;  // capacity of each group's recorder, in operations
  std::string folder;     // folder to which traces are written automatically; empty: no automatic traces
};

// Settings of a HostGroup.
struct HostGroupSettings {
  MeetingSettings meeting;
  int32_t stall_timeout_ms = 30'000;
  TuningOverrides tuning;
  TraceSettings trace;
};

// The host group as one rank sees it. The monitor calls it on the monitor's thread.
class HostGroup : public MonitorClient, public std::enable_shared_from_this<HostGroup> {
 public:
  using Meet = std::function<MeetingResult(const MeetingSettings&)>;

  // Blocks until all ranks have arrived, and until the page and the pidfd of every process have been
  // received.
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
  // Returns whether there are more ranks on this host than processors on which they may run. The answer is
  // equal on all ranks.
  bool oversubscribed() const noexcept { return oversubscribed_; }
  int spins() const noexcept { return spin_limit(oversubscribed_); }
  Tuning tuning_of(int members) const {
    return choose_tuning(members, oversubscribed_, kernel_copies_, tuning_overrides_);
  }
  MemoryRegistry& memory() const noexcept { return *memory_; }
  // Unmaps the shared memory that all its ranks have freed, and waits until no other thread is still
  // unmapping some, at most until the deadline. Any thread.
  void unmap_unused_memory(Deadline deadline) noexcept;
  uint32_t library_version() const noexcept { return library_version_; }
  size_t trace_entries() const noexcept { return trace_.entries; }
  const std::string& trace_folder() const noexcept { return trace_.folder; }

  // These functions publish, withdraw and fetch file descriptors of ranks of this host.
  void publish(ItemKind kind, uint64_t id, int fd);
  void withdraw(ItemKind kind, uint64_t id) noexcept;
  UniqueFd fetch(int local_rank, const std::string& owner, ItemKind kind, uint64_t id, Deadline deadline,
                 const std::function<void()>& check) const;

  // Returns whether a process has not run for so long that it counts as failed.
  bool is_stalled(const PeerProcess& peer) const noexcept {
    return stall_timeout_ms_ > 0 && peer.unresponsive_ns.load() >= stall_timeout_ms_ * kNsPerMs;
  }

  // Returns the ranks of this host whose processes count as failed because they do not run, as events for
  // other hosts. Any thread may call this.
  std::vector<RankGone> stalled_ranks() const;

  // Adds a group, which is notified when one of its processes ends or stops.
  void enroll(const std::shared_ptr<Group>& group);
  std::vector<std::shared_ptr<Group>> groups();
  // Returns the records of all groups. Failed groups that were destroyed are included, but at most the first
  // and the latest 15.
  std::vector<GroupRecord> records();
  // Adds a reducer. Traces include its iterations while it exists, and afterwards if its latest iteration is
  // unfinished.
  void add_iterations(std::shared_ptr<const IterationSource> source);
  std::vector<RecordedIteration> iterations() const;
  // Announces to all groups except `except` that this rank finalizes the world, so that their members do not
  // wait for it.
  void tell_of_finalize(uint64_t except) noexcept;
  // Returns whether tell_of_finalize() was called. Needed by groups whose communicators are created later.
  bool finalizes() noexcept;

  // Called when a group has failed. If there is a folder for traces, requests that this rank's trace is
  // written soon. Any thread may call this.
  void on_failure(const Group& group) noexcept;

  // Announces that the world is about to end. From now on, processes that want to start a world with the same
  // name are asked to wait instead of being rejected.
  void begin_closing(bool failed) noexcept;
  // While the world is tentative, it may still fail before it is returned to the user. New processes with the
  // same name are then also asked to wait.
  void set_tentative(bool tentative) noexcept { tentative_.store(tentative); }
  void close_name() noexcept;
  // Keeps the store of the job until the name of the world is released.
  void hold_name(const std::shared_ptr<JobStore>& job) noexcept;

  // Number of operations of this rank that run on threads of an engine, not in the queues of this host.
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
  void decide_on_single_copy();
  void probe_processes() const;
  static void await_end(const PeerProcess& peer);
  void count_all_processors();
  void watch();
  ItemKey key(int local_rank, ItemKind kind, uint64_t id) const;
  void on_end(PeerProcess& peer);
  SegmentsById take_unused_memory() noexcept;
  void begin_unmapping() noexcept;
  void look_at(PeerProcess& peer, int64_t now, bool after_gap);

  int rank_ = -1;
  const int32_t stall_timeout_ms_;
  const uint32_t library_version_;
  const TuningOverrides tuning_overrides_;
  bool kernel_copies_ = false;  // large data in ordinary memory is copied by the kernel
  const TraceSettings trace_;
  std::atomic<bool> enrolled_{false};  // set once the trace writer knows this host group; read by the monitor
  Process& process_;
  Nonce nonce_;
  std::vector<Member> members_;
  const JobLayout layout_;
  std::vector<std::unique_ptr<PeerProcess>> peers_;
  std::vector<size_t> peer_of_rank_;
  bool oversubscribed_ = false;
  const std::shared_ptr<MemoryRegistry> memory_ = std::make_shared<MemoryRegistry>();
  // Number of threads that are unmapping memory; they may outlive this object.
  const std::shared_ptr<std::atomic<int>> unmapping_ = std::make_shared<std::atomic<int>>(0);
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
  // The records of failed groups, which are kept after the groups are destroyed. Filled only if there is a
  // folder for traces.
  std::vector<GroupRecord> failed_records_ DSC_GUARDED_BY(groups_mutex_);
  bool finalizes_ DSC_GUARDED_BY(groups_mutex_) = false;
  // First failure of any group; empty if none has failed.
  std::string first_failure_ DSC_GUARDED_BY(groups_mutex_);
};

}  // namespace dsc
