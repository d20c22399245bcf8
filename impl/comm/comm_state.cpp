#include "comm/comm_state.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/process_guard.hpp"
#include "comm/engine.hpp"
#include "comm/group_ids.hpp"

namespace dsc {
namespace {

// An error record has only the id of its group: it is of fixed size, and travels between processes.
class GroupNames {
 public:
  void add(uint64_t id, const std::string& name) {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[id];
    entry.name = name;
    ++entry.objects;
  }

  // A call that fails may destroy its group before anybody asks for the record, so that the name stays a
  // while.
  void end(uint64_t id) noexcept {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end() || --found->second.objects > 0) return;
    const uint64_t oldest = std::exchange(ended_[n_ended_++ % kMostEnded], id);
    const auto forgotten = entries_.find(oldest);
    if (oldest != id && forgotten != entries_.end() && forgotten->second.objects == 0)
      entries_.erase(forgotten);
  }

  FixedText<32> find(uint64_t id) const noexcept {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(id);
    return found == entries_.end() ? FixedText<32>() : found->second.name;
  }

 private:
  struct Entry {
    FixedText<32> name;
    int objects = 0;  // ranks that are threads of one process have one each
  };
  static constexpr size_t kMostEnded = 64;

  mutable Mutex mutex_;
  std::map<uint64_t, Entry> entries_ DSC_GUARDED_BY(mutex_);
  std::array<uint64_t, kMostEnded> ended_ DSC_GUARDED_BY(mutex_){};
  size_t n_ended_ DSC_GUARDED_BY(mutex_) = 0;
};

// Never destroyed, because communicators may end until the process does.
GroupNames& group_names() {
  static GroupNames* const instance = new GroupNames;
  return *instance;
}

}  // namespace

// In a forked child the lock may be held by a thread that does not exist there.
FixedText<32> group_name(uint64_t id) noexcept {
  return is_forked_child() ? FixedText<32>() : group_names().find(id);
}

CommState::~CommState() {
  if (!is_forked_child()) group_names().end(id());
}

CommState::CommState(CommIdentity identity, LocalMembers local, std::shared_ptr<const WorldInfo> info,
                     int timeout_ms)
    : identity_(std::move(identity)),
      local_(std::move(local)),
      world_(local_.group ? &local_.group->world() : nullptr),
      info_(std::move(info)),
      timeout_ms_(timeout_ms) {
  group_names().add(id(), name());
}

int CommState::group_rank(int global_rank) const noexcept {
  const auto found = std::ranges::find(identity_.global_ranks, global_rank);
  return found == identity_.global_ranks.end() ? kNoRank
                                               : static_cast<int>(found - identity_.global_ranks.begin());
}

uint64_t CommState::next_id() noexcept { return mix_id(id(), children_.fetch_add(1)); }

std::string CommState::child_name() const { return name() + "/" + std::to_string(children_.load()); }

const char* CommState::why_over() const noexcept {
  if (world_ && world_->ended()) return "its world was finalized";
  if (finalized()) return "the communicator was finalized";
  return left() ? "the communicator was destroyed" : "this rank finalizes the world";
}

void CommState::expect_open() const {
  if (takes_no_part()) fail(DSC_ERR_STATE, "%s", why_over());
}

Failure CommState::refusal(const Failure& cause) const noexcept {
  Failure refusal;
  if (takes_no_part()) {
    refusal.code = DSC_ERR_STATE;
    refusal.text = why_over();
  } else {
    refusal = cause;
    refusal.code = DSC_ERR_REVOKED;
    refusal.text = "the communicator failed before: ";
    if (!cause.operation.empty()) refusal.text.add("%s: ", cause.operation.c_str());
    refusal.text += cause.text;
  }
  refusal.group = id();
  return refusal;
}

Failure CommState::caused_here(const char* operation, const char* what) const noexcept {
  Failure cause;
  cause.code = DSC_ERR_REVOKED;
  cause.ranks = {rank()};
  cause.has_user_ranks = true;
  cause.group = id();
  cause.operation = operation;
  cause.text.add("%s%s", describe_self().c_str(), what);
  return cause;
}

Failure CommState::aborted() const noexcept { return caused_here("abort", " aborted the communicator"); }

Failure CommState::destroyed() const noexcept {
  return caused_here("destroy", " destroyed the communicator while operations were running");
}

void CommState::name_operation(Failure& failure, const char* operation, uint64_t number) const noexcept {
  FixedText<224> where;
  where.add("%s number %" PRIu64 " of group \"%s\" on rank %d of %d: ", operation, number, name().c_str(),
            rank(), size());
  // The operations that differ in a mismatch have one number.
  const bool is_first = failure.sequence == number && (failure.code == DSC_ERR_MISMATCH ||
                                                       failure.operation == std::string_view(operation));
  const bool is_of_another = (failure.code == DSC_ERR_TIMEOUT || failure.code == DSC_ERR_MISMATCH) &&
                             failure.sequence != 0 && !is_first;
  if (is_of_another && !std::string_view(failure.text).starts_with(failure.operation))  // not named yet
    where.add("%s number %" PRIu64 " failed: ", failure.operation.c_str(), failure.sequence);
  const auto text = std::exchange(failure.text, where);
  failure.text += text;
  failure.group = id();
  failure.operation = operation;
  failure.sequence = number;
}

FixedText<64> CommState::describe_self() const noexcept {
  FixedText<64> text;
  text.add("rank %d (pid %d)", rank(), getpid());
  return text;
}

void CommState::add_channel(const std::shared_ptr<GroupEngine>& channel) {
  MutexLock lock(mutex_);
  std::erase_if(channels_, [](const auto& known) { return known.expired(); });
  channels_.push_back(channel);
}

std::vector<std::shared_ptr<GroupEngine>> CommState::channels() const {
  std::vector<std::shared_ptr<GroupEngine>> all;
  MutexLock lock(mutex_);
  for (const auto& known : channels_)
    if (auto channel = known.lock()) all.push_back(std::move(channel));
  return all;
}

void CommState::fail_channels(const Failure& cause) noexcept {
  Failure there = cause;  // a channel has not made the operation that failed
  there.operation = {};
  there.sequence = 0;
  call_out([&] {
    for (const auto& channel : channels()) channel->learn_of(there);
  });
}

void CommState::leave_channels() noexcept {
  call_out([&] {
    for (const auto& channel : channels()) channel->leave();
  });
}

void CommState::set_missing(std::vector<int32_t> ranks) {
  MutexLock lock(mutex_);
  missing_ = std::move(ranks);
}

std::vector<int32_t> CommState::missing() const {
  MutexLock lock(mutex_);
  return missing_;
}

}  // namespace dsc
