// The shared state of one communicator on this host: arrival slots, staging buffers, counters, and the first
// cause of its failure.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/mutex.hpp"
#include "control/call.hpp"
#include "control/group_record.hpp"
#include "control/host_group.hpp"
#include "control/layout.hpp"
#include "control/shared_record.hpp"

namespace dsc {

inline constexpr uint64_t kWorldId = 0;

// A group of ranks of one host, as it is seen by one of its members.
class Group : public std::enable_shared_from_this<Group> {
 public:
  // Creates and publishes this rank's segment. Members are numbered in the order of `local_ranks`.
  static std::shared_ptr<Group> create(const std::shared_ptr<HostGroup>& host, uint64_t id, std::string name,
                                       std::vector<int32_t> local_ranks);
  ~Group();

  // Maps the segments of all members, each of which must have called create(). While this waits, it calls
  // `check` repeatedly. `check` may throw.
  void map_members(Deadline deadline, const std::function<void()>& check);

  // Fetches an item that a member has published. Errors name the member by its rank in this group.
  UniqueFd fetch(int member, ItemKind kind, uint64_t id, Deadline deadline,
                 const std::function<void()>& check) const {
    return host_->fetch(local_rank(member), describe_member(member).str(), kind, id, deadline, check);
  }

  // Stops publishing this rank's segment. Called when all members have mapped it.
  void withdraw() noexcept;

  HostGroup& host() const noexcept { return *host_; }
  const std::shared_ptr<HostGroup>& shared_host() const noexcept { return host_; }
  uint64_t id() const noexcept { return id_; }
  const std::string& name() const noexcept { return name_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int local_rank(int member) const noexcept { return local_ranks_[static_cast<size_t>(member)]; }
  const std::vector<int32_t>& local_ranks() const noexcept { return local_ranks_; }
  const Tuning& tuning() const noexcept { return tuning_; }
  const Geometry& geometry() const noexcept { return geometry_; }
  // The most data of a rank that is published together with its call, in a SmallCollective. There is space
  // for 1 KiB of data from another host and for the description of its call.
  static constexpr size_t kMostSmallBytes = size_t{8} << 10;

  // ---- Arrival ----
  //
  // An epoch is one barrier round of all members. Every collective takes one or more epochs. A rank that has
  // seen all other ranks at epoch t may overwrite what it published at epoch t - 1. Only the thread that
  // drives the group's collectives may call these functions.
  uint64_t epoch() const noexcept { return epoch_; }
  Slot& next_slot() noexcept { return slot(rank_, epoch_ + 1); }
  void arrive() noexcept {  // publishes this rank's arrival at the next epoch
    ++epoch_;
    arrived_upto_ = 0;
    slot(rank_, epoch_).epoch.store(epoch_, std::memory_order_seq_cst);
    notify_all_members();
  }
  // Prefetches the cache lines of the next slot, and of `bytes` bytes of data, before the next arrival.
  void prepare_arrival(size_t bytes) const noexcept {
    own_lines(&slot(rank_, epoch_ + 1), 1);
    if (bytes > kSlotDataBytes) own_lines(stage(rank_, epoch_ + 1), bytes);
  }
  // Prefetches cache lines that this rank will write next. Other processors have read them last, so without
  // the prefetch the write would have to wait.
  static void own_lines(const void* first, size_t bytes) noexcept {
    for (size_t at = 0; at < bytes; at += kProcessorLine) own_line(static_cast<const std::byte*>(first) + at);
  }
  bool all_arrived() noexcept {  // returns whether all members have arrived at the current epoch
    while (arrived_upto_ < size_ && member_arrived(arrived_upto_)) ++arrived_upto_;
    return arrived_upto_ == size_;
  }
  // Returns whether a member has not yet arrived at the current epoch. The loads are sequentially consistent,
  // because callers compare their order with other sequentially consistent accesses.
  bool misses_somebody() const noexcept {
    for (int member = 0; member < size_; ++member)
      if (slot(member, epoch_).epoch.load(std::memory_order_seq_cst) < epoch_) return true;
    return false;
  }
  bool member_arrived(int member) const noexcept {
    return slot(member, epoch_).epoch.load(std::memory_order_acquire) >= epoch_;
  }

  Slot& slot(int member, uint64_t epoch) const noexcept {
    return *reinterpret_cast<Slot*>(base(member) + geometry_.slots + (epoch & 1) * geometry_.slot_stride);
  }
  std::byte* stage(int member, uint64_t epoch) const noexcept {
    return base(member) + geometry_.slots + (epoch & 1) * geometry_.slot_stride + sizeof(Slot);
  }
  // Returns the address of a member's data in an operation with at most `bytes` bytes per member.
  std::byte* data(int member, uint64_t epoch, size_t bytes) const noexcept {
    return bytes <= kSlotDataBytes ? slot(member, epoch).data.data() : stage(member, epoch);
  }
  // Returns the lengths of the blocks that a member sends to each member, followed by those that it expects
  // from each member.
  uint64_t* lengths(int member, uint64_t epoch) const noexcept {
    return reinterpret_cast<uint64_t*>(base(member) + geometry_.lengths) +
           (epoch & 1) * 2 * static_cast<size_t>(size_);
  }
  EpochRecord& record(uint64_t epoch) const noexcept {
    return reinterpret_cast<EpochRecord*>(base(0) + geometry_.records)[epoch & 1];
  }
  MemberState& state(int member) const noexcept {
    return *reinterpret_cast<MemberState*>(base(member) + geometry_.state);
  }
  SendChannel& send_channel(int from, int to) const noexcept {
    return reinterpret_cast<SendChannel*>(base(from) + geometry_.send_channels)[to];
  }
  RecvChannel& recv_channel(int from, int to) const noexcept {
    return reinterpret_cast<RecvChannel*>(base(to) + geometry_.recv_channels)[from];
  }
  std::byte* chunk(int from, int to, uint64_t sequence) const noexcept {
    return base(from) + geometry_.chunks +
           (static_cast<size_t>(to) * 2 + (sequence & 1)) * geometry_.chunk_bytes;
  }

  // ---- Shared cells for Consensus ----
  std::atomic<uint64_t>& decision() const noexcept {
    return reinterpret_cast<DecisionCell*>(base(0) + geometry_.decision)->word;
  }
  SharedRecord ballot(int member, uint64_t sequence) const noexcept {
    const size_t words = geometry_.ballot_words;
    return {base(member) + geometry_.ballots + (sequence & 1) * SharedRecord::bytes(words), words};
  }
  SharedRecord proposal(int member, uint64_t sequence) const noexcept {
    const size_t words = geometry_.proposal_words;
    return {base(member) + geometry_.proposals + (sequence & 1) * SharedRecord::bytes(words), words};
  }

  // Wakes all processes in which a thread may be waiting for what this rank has just stored.
  void notify_all_members() noexcept {
    for (Notifier* notifier : notifiers_) notifier->notify();
  }
  void notify_member(int member) noexcept { process_of(member).page->notifier.notify(); }
  PeerProcess& process_of(int member) const noexcept { return host_->process_of(local_rank(member)); }

  // ---- Failure: any thread may call these functions ----
  bool revoked() const noexcept { return failure_word().load(std::memory_order_seq_cst) != 0; }
  // Sets the first cause of failure for all members. Has no effect if a cause is already set.
  void revoke(const Failure& cause) noexcept;
  Failure first_cause() const;
  // Returns the code of the first cause, or DSC_OK if the group has not failed.
  dsc_result_t first_code() const noexcept;
  // Returns whether the first cause was set by this rank.
  bool failed_here() const noexcept;
  // Reports the failure to the world, which writes the trace. Called again when this rank has recorded more
  // about the failed operation.
  void tell_failure() noexcept;
  // Reports the failure on a rank that is in no call of the library. Called at every heartbeat.
  void look_at_failure() noexcept;
  void process_gone(const PeerProcess& peer);
  void process_stalled(const PeerProcess& peer, int64_t missed_ns, const char* state);
  // Returns the members whose processes are not running now. `longest_ns` becomes the longest time for which
  // one of them has not run.
  RankList silent_members(int64_t& longest_ns) const noexcept;

  // Announces that this rank takes part in no further operation.
  void leave() noexcept;
  // Like leave(), but also announces the reason: this rank finalizes the world.
  void leave_to_finalize() noexcept;
  // Sets the function that is called when this rank finalizes the world. An empty function does nothing. If
  // the rank is already finalizing, the function is called immediately.
  void on_finalize(std::function<void()> handler);
  void tell_of_finalize() noexcept;
  // Returns a text such as "rank 3 (pid 4711) has left the group".
  FixedText<160> describe_departure(int member) const noexcept;
  bool has_left(int member) const noexcept { return state(member).left.load(std::memory_order_acquire) != 0; }

  Recorder& recorder() noexcept { return *recorder_; }
  GroupRecord record() const;  // may be called by any thread

  // Sets the communicator that runs this group's operations on devices, for the trace. Any thread may call
  // this.
  void bind_to_devices(WholeGroup whole);
  WholeGroup on_devices() const;

  // From now on, operations of this group are steps of operations of `whole`, and this group's recorder
  // records the operations of `whole`. Any thread may call this.
  void become_part_of(WholeGroup whole);
  bool is_part() const noexcept { return is_part_.load(std::memory_order_acquire); }
  // These functions return the ranks by which the user knows members. If the group is part of a larger
  // communicator, they are the ranks there. Causes of failures use the same ranks.
  int32_t shown_rank(int member) const noexcept {
    return is_part() && member >= 0 && member < size_ ? shown_ranks_[static_cast<size_t>(member)] : member;
  }
  std::vector<int32_t> shown_ranks(std::vector<int32_t> members) const;
  WholeGroup between_hosts() const;

  // Returns why this rank expects no answer from a member: PEER_DEAD, PEER_LEFT or PEER_STALLED. Returns
  // DSC_OK if the member may still answer.
  dsc_result_t loss_of(int member) const noexcept;

  // Returns whether a member is working on its part of an operation. Used only for error texts.
  bool is_busy(int member) const noexcept {
    const MemberState& it = state(member);
    return it.busy.load(std::memory_order_relaxed) != 0 || it.working.load(std::memory_order_relaxed) != 0;
  }
  // Returns the members that have arrived in fewer barrier rounds than this rank. If this rank is in a
  // collective, it is waiting for them.
  RankList members_behind() const noexcept;
  void show_busy(bool busy) noexcept { state(rank_).busy.store(busy ? 1 : 0, std::memory_order_relaxed); }
  bool is_silent(int member) const noexcept { return process_of(member).unresponsive_ns.load() != 0; }

  // Publishes that this rank has begun an operation.
  void show_latest(const Call& call, uint64_t sequence) noexcept;
  // Describes the operation that a member began last: "collective 811 (all_reduce)" or "send number 3 to rank
  // 2". Returns an empty text if there was none.
  std::string describe_latest(int member) const;
  // The message that a member began last and for which the peer has not yet made the matching call.
  struct OpenMessage {
    bool sends = false;
    int peer = 0;
  };
  std::optional<OpenMessage> open_message(int member) const noexcept;
  // Returns the sequence number of the collective that a member began last. Returns 0 if its last operation
  // was a message, or if there was none.
  uint64_t latest_collective(int member) const noexcept;

  // Returns a text such as "rank 3 (pid 4711)", with the rank by which the user knows the member.
  FixedText<64> describe_member(int member) const noexcept;

 private:
  static constexpr size_t kProcessorLine = 64;
  static void own_line([[maybe_unused]] const void* line) noexcept {
#if defined(__x86_64__)
    asm volatile("prefetchw (%0)" ::"r"(line));
#else
    __builtin_prefetch(line, 1);
#endif
  }
  void leave_because(uint32_t reason) noexcept;
  Group(const std::shared_ptr<HostGroup>& host, uint64_t id, std::string name,
        std::vector<int32_t> local_ranks);
  void make_segment();
  bool reads_members() const noexcept;
  std::byte* base(int member) const noexcept { return bases_[static_cast<size_t>(member)]; }
  std::atomic<uint64_t>& failure_word() const noexcept { return failure_cell(0).word; }
  FailureCell& failure_cell(int member) const noexcept {
    return *reinterpret_cast<FailureCell*>(base(member) + geometry_.failure);
  }
  RankList members_in(const PeerProcess& peer) const noexcept;
  void check_peers() const;
  UniqueFd fetch_segment(int member, Deadline deadline, const std::function<void()>& check) const;

  const std::shared_ptr<HostGroup> host_;
  const uint64_t id_;
  const std::string name_;
  const std::vector<int32_t> local_ranks_;
  const int size_;
  int rank_ = -1;
  Tuning tuning_;  // constant once the members' segments are mapped
  const Geometry geometry_;
  std::vector<std::shared_ptr<Mapping>> mappings_;
  std::vector<std::byte*> bases_;
  std::vector<Notifier*> notifiers_;  // one entry per process
  std::atomic<bool> published_{false};

  uint64_t epoch_ = 0;
  int arrived_upto_ = 0;  // members below this index have arrived at epoch_

  const std::shared_ptr<Recorder> recorder_;
  Mutex finalize_mutex_;
  std::function<void()> finalize_handler_ DSC_GUARDED_BY(finalize_mutex_);

  std::atomic<bool> is_part_{false};
  std::vector<int32_t> shown_ranks_;  // written before is_part_ is set
  mutable Mutex whole_mutex_;
  WholeGroup on_devices_ DSC_GUARDED_BY(whole_mutex_);
  WholeGroup between_hosts_ DSC_GUARDED_BY(whole_mutex_);
  std::atomic<bool> failure_told_{false};
  Mutex failure_mutex_;
  bool wrote_failure_ DSC_GUARDED_BY(failure_mutex_) = false;
};

// Returns a hash of all arguments of a call that must be equal on all ranks.
uint64_t fingerprint(uint64_t group, uint64_t sequence, const CallFields& call) noexcept;
// Like fingerprint(), for a message. Sender and receiver get the same value.
uint64_t fingerprint_of_message(uint64_t group, uint64_t sequence, CallFields call) noexcept;
CallFields fields_of(const Call& call) noexcept;
// Returns a text such as "all_reduce(sum, f32, 1000)".
std::string describe(const CallFields& call, const char* note);

}  // namespace dsc
