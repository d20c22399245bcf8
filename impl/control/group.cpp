#include "control/group.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/error.hpp"
#include "base/fixed_text.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"

namespace dsc {
namespace {

// The failure word holds 1 << 63 | code << 16 | the index of the member whose segment contains the cause.
constexpr uint64_t kFailed = uint64_t{1} << 63;

uint64_t failure_word_of(dsc_result_t code, int member) noexcept {
  return kFailed | static_cast<uint64_t>(-code) << 16 | static_cast<uint64_t>(member);
}

constexpr uint32_t kLeft = 1, kLeftToFinalize = 2;

// A member's latest operation is packed into one word, so that it can be read atomically. From the highest
// bits down, the word contains the kind, the root or peer plus 1, and the sequence number.
constexpr int kLatestKindShift = 56;
constexpr int kLatestRootShift = 40;
constexpr uint64_t kLatestRootMask = 0xffff;
constexpr uint64_t kLatestSequenceMask = (uint64_t{1} << kLatestRootShift) - 1;

}  // namespace

std::shared_ptr<Group> Group::create(const std::shared_ptr<HostGroup>& host, uint64_t id, std::string name,
                                     std::vector<int32_t> local_ranks) {
  std::shared_ptr<Group> group(new Group(host, id, std::move(name), std::move(local_ranks)));
  group->make_segment();
  return group;
}

Group::Group(const std::shared_ptr<HostGroup>& host, uint64_t id, std::string name,
             std::vector<int32_t> local_ranks)
    : host_(host),
      id_(id),
      name_(std::move(name)),
      local_ranks_(std::move(local_ranks)),
      size_(static_cast<int>(local_ranks_.size())),
      tuning_(host->tuning_of(size_)),
      geometry_(size_, tuning_),
      recorder_(std::make_shared<Recorder>(host->trace_entries())) {
  const auto self = std::find(local_ranks_.begin(), local_ranks_.end(), host->rank());
  rank_ = static_cast<int>(self - local_ranks_.begin());
}

Group::~Group() { withdraw(); }

// The segment is filled before it is published, because other members may map it immediately.
void Group::make_segment() {
  const UniqueFd fd = create_segment("dsc-group", geometry_.bytes, static_cast<size_t>(size_));
  mappings_.resize(static_cast<size_t>(size_));
  bases_.resize(static_cast<size_t>(size_));
  auto& mapping = mappings_[static_cast<size_t>(rank_)];
  mapping = map_segment(fd.get(), geometry_.bytes, OnFork::kGone);
  bases_[static_cast<size_t>(rank_)] = mapping->data();
  auto* header = new (mapping->data()) MemberHeader{};
  header->magic = kMemberMagic;
  header->version = kLayoutVersion;
  header->size = size_;
  header->rank = rank_;
  header->stage_bytes = static_cast<uint32_t>(geometry_.stage_bytes);
  header->group = id_;
  header->single_copy_min_bytes = reads_members() ? tuning_.single_copy_min_bytes : kNoLimit;
  host_->publish(ItemKind::kGroupSegment, id_, fd.get());
  published_ = true;
}

bool Group::reads_members() const noexcept {
  for (int member = 0; member < size_; ++member)
    if (!process_of(member).memory.readable()) return false;
  return true;
}

void Group::withdraw() noexcept {
  if (published_.exchange(false)) host_->withdraw(ItemKind::kGroupSegment, id_);
}

void Group::check_peers() const {
  for (int member = 0; member < size_; ++member)
    if (const dsc_result_t gone = process_of(member).gone.load(); gone != DSC_OK)
      fail(gone, "%s %s while the group was being created", describe_member(member).c_str(),
           gone == DSC_ERR_PEER_LEFT ? "left" : "died");
}

UniqueFd Group::fetch_segment(int member, Deadline deadline, const std::function<void()>& check) const {
  UniqueFd fd;
  capture(
      [&] {
        fd = fetch(member, ItemKind::kGroupSegment, id_, deadline, [&] {
          check_peers();
          check();
        });
      },
      [&](const Error& error) {
        // The member may have left because another member died. That death is the error to report.
        if (error.code() == DSC_ERR_PEER_LEFT) check_peers();
        throw Error(error);
      });
  return fd;
}

// Keeps the notifier of each process only once, because several members may share a process.
void Group::map_members(Deadline deadline, const std::function<void()>& check) {
  for (int member = 0; member < size_; ++member) {
    auto& mapping = mappings_[static_cast<size_t>(member)];
    if (member != rank_) {
      const UniqueFd fd = fetch_segment(member, deadline, check);
      mapping = map_segment(fd.get(), geometry_.bytes, OnFork::kGone);
    }
    const auto* header = reinterpret_cast<const MemberHeader*>(mapping->data());
    if (header->magic != kMemberMagic || header->version != kLayoutVersion || header->size != size_ ||
        header->rank != member || header->group != id_ || header->stage_bytes != geometry_.stage_bytes)
      fail(DSC_ERR_PROTOCOL, "the shared memory of %s has another layout or belongs to another group",
           describe_member(member).c_str());
    tuning_.single_copy_min_bytes =
        std::max(tuning_.single_copy_min_bytes, static_cast<size_t>(header->single_copy_min_bytes));
    bases_[static_cast<size_t>(member)] = mapping->data();
    Notifier* notifier = &process_of(member).page->notifier;
    if (std::find(notifiers_.begin(), notifiers_.end(), notifier) == notifiers_.end())
      notifiers_.push_back(notifier);
  }
  host_->enroll(shared_from_this());
}

FixedText<64> Group::describe_member(int member) const noexcept {
  FixedText<64> text;
  text.add("rank %d (pid %" PRId64 ")", shown_rank(member), process_of(member).pid);
  return text;
}

void Group::show_latest(const Call& call, uint64_t sequence) noexcept {
  const auto root = static_cast<uint64_t>(call.root + 1) & kLatestRootMask;
  state(rank_).latest.store(static_cast<uint64_t>(call.kind) << kLatestKindShift | root << kLatestRootShift |
                                (sequence & kLatestSequenceMask),
                            std::memory_order_relaxed);
}

std::string Group::describe_latest(int member) const {
  const uint64_t latest = state(member).latest.load(std::memory_order_relaxed);
  const auto kind = static_cast<OpKind>(latest >> kLatestKindShift);
  if (latest == 0 || has_no_sequence(kind)) return {};
  const std::string root =
      std::to_string(shown_rank(static_cast<int>(latest >> kLatestRootShift & kLatestRootMask) - 1));
  return numbered(op_kind_name(kind), latest & kLatestSequenceMask).str() +
         (kind == OpKind::kSend   ? " to rank " + root
          : kind == OpKind::kRecv ? " from rank " + root
                                  : "");
}

std::optional<Group::OpenMessage> Group::open_message(int member) const noexcept {
  const uint64_t latest = state(member).latest.load(std::memory_order_relaxed);
  const auto kind = static_cast<OpKind>(latest >> kLatestKindShift);
  const int peer = static_cast<int>(latest >> kLatestRootShift & kLatestRootMask) - 1;
  const bool sends = kind == OpKind::kSend;
  if ((!sends && kind != OpKind::kRecv) || peer < 0 || peer >= size_) return std::nullopt;
  const uint64_t sequence = latest & kLatestSequenceMask;
  const RecvChannel& end = sends ? recv_channel(member, peer) : recv_channel(peer, member);
  if (end.finished.load(std::memory_order_acquire) >= sequence) return std::nullopt;
  const auto& other = sends ? end.posts : send_channel(peer, member).posts;
  if (other[sequence & 1].sequence.load(std::memory_order_acquire) >= sequence)
    return std::nullopt;  // the other rank has posted its half, so the message is in progress
  return OpenMessage{sends, peer};
}

uint64_t Group::latest_collective(int member) const noexcept {
  const uint64_t latest = state(member).latest.load(std::memory_order_relaxed);
  const auto kind = static_cast<OpKind>(latest >> kLatestKindShift);
  const bool is_other = is_message(kind) || has_no_sequence(kind);
  return is_other ? 0 : latest & kLatestSequenceMask;
}

void Group::tell_failure() noexcept {
  failure_told_.store(true);
  host_->on_failure(*this);
}

void Group::bind_to_devices(WholeGroup whole) {
  const MutexLock lock(whole_mutex_);
  on_devices_ = std::move(whole);
}

WholeGroup Group::on_devices() const {
  const MutexLock lock(whole_mutex_);
  return on_devices_;
}

void Group::become_part_of(WholeGroup whole) {
  const MutexLock lock(whole_mutex_);
  shown_ranks_ = whole.members;
  between_hosts_ = std::move(whole);
  is_part_.store(true);
}

std::vector<int32_t> Group::shown_ranks(std::vector<int32_t> members) const {
  for (int32_t& member : members) member = shown_rank(member);
  return members;
}

WholeGroup Group::between_hosts() const {
  const MutexLock lock(whole_mutex_);
  return between_hosts_;
}

GroupRecord Group::record() const {
  if (is_part()) return {between_hosts(), on_devices(), recorder_};
  WholeGroup own{id_, name_, {}};
  for (const int32_t rank : local_ranks_) own.global_ranks.push_back(host_->global_rank(rank));
  return {std::move(own), on_devices(), recorder_};
}

void Group::look_at_failure() noexcept {
  if (revoked() && !failure_told_.load()) tell_failure();
}

void Group::revoke(const Failure& cause) noexcept {
  MutexLock lock(failure_mutex_);
  if (wrote_failure_ || revoked()) return;
  wrote_failure_ = true;
  Failure& cell = failure_cell(rank_).cause;
  cell = cause;
  cell.revoked = true;
  cell.set_group(id_, name_);
  if (!cause.has_user_ranks)
    for (int32_t& rank : cell.ranks) rank = shown_rank(rank);
  cell.has_user_ranks = is_part();
  uint64_t none = 0;
  if (failure_word().compare_exchange_strong(none, failure_word_of(cause.code, rank_),
                                             std::memory_order_seq_cst)) {
    const bool is_users = !cause.operation.empty() &&
                          // If the group is part of a larger communicator, an unpublished failure concerns
                          // only one step of the user's operation.
                          (!is_part() || cause.is_published);
    log(cause.code == DSC_ERR_REVOKED ? DSC_LOG_LEVEL_INFO : DSC_LOG_LEVEL_ERROR,
        "rank %d: group \"%s\" failed: %s%s%s", shown_rank(rank_), name_.c_str(),
        is_users ? cause.operation.c_str() : "", is_users ? ": " : "", cause.text.c_str());
  }
  notify_all_members();
}

dsc_result_t Group::first_code() const noexcept {
  return -static_cast<dsc_result_t>(failure_word().load(std::memory_order_acquire) >> 16 & 0xff);
}

bool Group::failed_here() const noexcept {
  const uint64_t word = failure_word().load(std::memory_order_acquire);
  return word != 0 && static_cast<int>(word & 0xffff) == rank_;
}

// The cause is in the segment of the member that set the word. That member may be corrupted, so everything is
// checked.
Failure Group::first_cause() const {
  const uint64_t word = failure_word().load(std::memory_order_acquire);
  const int writer = static_cast<int>(word & 0xffff);
  Failure cause;
  if (word != 0 && writer < size_) cause = failure_cell(writer).cause;
  cause.bound();
  // The group failed before it became part of a larger communicator, so the cause still contains ranks of the
  // group.
  if (!cause.has_user_ranks && is_part()) {
    for (int32_t& rank : cause.ranks) rank = shown_rank(rank);
    cause.has_user_ranks = true;
  }
  if (!is_part()) cause.ranks.bound_to(size_);
  cause.set_group(id_, name_);
  cause.revoked = word != 0;
  cause.code = first_code();
  if (word != 0 && !is_error(cause.code)) cause.code = DSC_ERR_PROTOCOL;
  return cause;
}

// Returns the members in the process `peer`, except those that have left the group. The end of a member that
// has left is not a failure.
RankList Group::members_in(const PeerProcess& peer) const noexcept {
  RankList members;
  for (int member = 0; member < size_; ++member)
    if (&process_of(member) == &peer && !has_left(member)) members.push_back(member);
  return members;
}

void Group::process_gone(const PeerProcess& peer) {
  Failure cause;
  cause.ranks = members_in(peer);
  if (cause.ranks.empty()) return;
  cause.code = peer.gone.load();
  cause.text.add("%s %s", describe_member(cause.rank()).c_str(),
                 cause.code == DSC_ERR_PEER_LEFT ? "exited without finalizing" : "died");
  revoke(cause);
}

void Group::process_stalled(const PeerProcess& peer, int64_t missed_ns, const char* state) {
  Failure cause;
  cause.ranks = members_in(peer);
  // The notification is needed because revoke() wakes no thread if the group has already failed.
  host_->process().notifier().notify();
  if (cause.ranks.empty()) return;
  cause.code = DSC_ERR_PEER_STALLED;
  cause.elapsed_ns = missed_ns;
  cause.text.add("%s has not run for %.1f s: it is %s", describe_member(cause.rank()).c_str(),
                 static_cast<double>(missed_ns) / kNsPerSecond, state);
  revoke(cause);
}

RankList Group::silent_members(int64_t& longest_ns) const noexcept {
  RankList silent;
  longest_ns = 0;
  for (int member = 0; member < size_; ++member) {
    const int64_t missed_ns = process_of(member).unresponsive_ns.load();
    if (missed_ns == 0) continue;
    silent.push_back(member);
    longest_ns = std::max(longest_ns, missed_ns);
  }
  return silent;
}

// Reads the arrival slots instead of epoch_, because any thread may call this, and epoch_ may be used only by
// the thread that drives the collectives.
RankList Group::members_behind() const noexcept {
  const auto latest_epoch = [this](int member) {
    return std::max(slot(member, 0).epoch.load(std::memory_order_acquire),
                    slot(member, 1).epoch.load(std::memory_order_acquire));
  };
  const uint64_t own = latest_epoch(rank_);
  RankList behind;
  for (int member = 0; member < size_; ++member)
    if (latest_epoch(member) < own) behind.push_back(member);
  return behind;
}

dsc_result_t Group::loss_of(int member) const noexcept {
  if (has_left(member)) return DSC_ERR_PEER_LEFT;
  const PeerProcess& process = process_of(member);
  if (const dsc_result_t gone = process.gone.load(); gone != DSC_OK) return gone;
  return host_->is_stalled(process) ? DSC_ERR_PEER_STALLED : DSC_OK;
}

void Group::leave_because(uint32_t reason) noexcept {
  uint32_t none = 0;  // the exchange below keeps only the first reason
  state(rank_).left.compare_exchange_strong(none, reason, std::memory_order_seq_cst);
  notify_all_members();
}

void Group::leave() noexcept { leave_because(kLeft); }
void Group::leave_to_finalize() noexcept { leave_because(kLeftToFinalize); }

void Group::on_finalize(std::function<void()> handler) {
  {
    const MutexLock lock(finalize_mutex_);
    finalize_handler_ = std::move(handler);
  }
  // The host may have begun to finalize before the handler was set.
  if (host_->finalizes()) tell_of_finalize();
}

void Group::tell_of_finalize() noexcept {
  const MutexLock lock(finalize_mutex_);
  if (finalize_handler_ && !has_left(rank_)) call_out(finalize_handler_);
}

FixedText<160> Group::describe_departure(int member) const noexcept {
  const bool finalizes = state(member).left.load(std::memory_order_acquire) == kLeftToFinalize;
  FixedText<160> text = describe_member(member);
  return text +=
         finalizes ? " finalizes the world and takes part in no more operations" : " has left the group";
}

}  // namespace dsc
