// All ranks of a job on this host, as one of them sees them: who they are, whether they live, and what they
// share. They are numbered from 0 by their place on the host; with one host that is their rank in the job.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "bootstrap/meeting.hpp"
#include "bootstrap/rendezvous.hpp"
#include "control/memory.hpp"
#include "control/process.hpp"

namespace dsc {

class Group;

enum class ItemKind : uint32_t { kProcessPage = 1, kPidfd = 2, kGroupSegment = 3, kMemory = 4 };

// Another process of the world, or this one.
struct PeerProcess {
  std::string endpoint;
  int64_t pid = 0;
  std::vector<int32_t> ranks;
  bool own = false;
  std::shared_ptr<Mapping> mapping;
  ProcessPage* page = nullptr;
  UniqueFd pidfd;
  std::atomic<dsc_result_t> gone{DSC_OK};  // PEER_DEAD or PEER_LEFT once its end was seen
  std::atomic<int64_t> silent_ns{0};       // how long its heartbeat has stood still; 0: it beats
  uint64_t last_beat = 0;                  // monitor's thread only
  int64_t last_change_ns = 0;              // monitor's thread only
};

struct TraceSettings {
  size_t entries = 2000;  // operations that each group's recorder holds
  std::string folder;     // of the files that are written by themselves; empty: none
};

struct WorldSettings {
  MeetingSettings meeting;
  int32_t stall_timeout_ms = 30'000;
  TuningOverrides tuning;
  TraceSettings trace;
};

class World : public MonitorClient, public std::enable_shared_from_this<World> {
 public:
  using Meet = std::function<MeetingResult(const MeetingSettings&)>;

  // Blocks until all ranks came and every process page and pidfd is here.
  static std::shared_ptr<World> join(const WorldSettings& settings, const Meet& meet_ranks = meet);
  ~World() override;

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
  int process_count() const noexcept { return static_cast<int>(peers_.size()); }
  // More ranks than processors that they may run on. Equal on all ranks.
  bool oversubscribed() const noexcept { return oversubscribed_; }
  int spins() const noexcept { return spin_limit(oversubscribed_); }
  Tuning tuning_of(int members) const { return choose_tuning(members, oversubscribed_, tuning_overrides_); }
  MemoryRegistry& memory() const noexcept { return *memory_; }
  uint32_t library_version() const noexcept { return library_version_; }
  size_t trace_entries() const noexcept { return trace_.entries; }
  const std::string& trace_folder() const noexcept { return trace_.folder; }

  // Descriptors of the ranks of this world.
  void publish(ItemKind kind, uint64_t id, int fd);
  void withdraw(ItemKind kind, uint64_t id) noexcept;
  UniqueFd fetch(int local_rank, const std::string& owner, ItemKind kind, uint64_t id, Deadline deadline,
                 const std::function<void()>& check) const;

  // Whether a process has not run for so long that it counts as failed.
  bool is_stalled(const PeerProcess& peer) const noexcept {
    return stall_timeout_ms_ > 0 && peer.silent_ns.load() >= stall_timeout_ms_ * kNsPerMs;
  }

  // Groups are told when a process of theirs ends or stops.
  void enroll(const std::shared_ptr<Group>& group);
  std::vector<std::shared_ptr<Group>> groups();
  // This rank finalizes the world: the members of its other groups must not wait for it.
  void tell_of_finalize(uint64_t except) noexcept;

  // A group has failed: with a folder for traces, this rank's is written soon. Any thread.
  void on_failure(const Group& group) noexcept;

  // The world is about to end: who comes to its name is asked to wait instead of being sent away.
  void begin_closing(bool failed) noexcept;
  // The world may fail before it is anybody's: who comes to its name meanwhile is asked to wait, too.
  void set_tentative(bool tentative) noexcept { held_closing_.store(tentative); }
  void close_name() noexcept;
  // What is closed together with the name.
  void hold_name(std::shared_ptr<JobStore> job) noexcept;

  // This rank takes no further part in any group.
  void end() noexcept;
  bool ended() const noexcept { return ended_.load(std::memory_order_relaxed); }

  bool on_readable(int fd) noexcept override;
  void on_heartbeat(int64_t now, bool after_gap) noexcept override;

 private:
  World(const WorldSettings& settings, MeetingResult met);
  void find_processes();
  bool has_failed() noexcept;
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
  std::atomic<bool> enrolled_{false};  // the monitor looks at it already when it is set
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
  std::atomic<bool> held_closing_{false};
  std::atomic<bool> ended_{false};

  Mutex groups_mutex_;
  std::vector<std::weak_ptr<Group>> groups_ DSC_GUARDED_BY(groups_mutex_);
  std::string first_failure_ DSC_GUARDED_BY(groups_mutex_);  // of any group; empty: none
};

}  // namespace dsc
