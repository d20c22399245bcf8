#include "comm/comm_state.hpp"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/error.hpp"
#include "base/process_guard.hpp"
#include "comm/engine.hpp"
#include "comm/group_ids.hpp"

namespace dsc {

CommState::CommState(CommIdentity identity, LocalMembers local, std::shared_ptr<const WorldInfo> info,
                     int timeout_ms)
    : identity_(std::move(identity)),
      local_(std::move(local)),
      world_(local_.group ? &local_.group->world() : nullptr),
      info_(std::move(info)),
      timeout_ms_(timeout_ms) {}

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

Failure CommState::refusal(const Failure& cause) const {
  Failure refusal;
  if (takes_no_part()) {
    refusal.code = DSC_ERR_STATE;
    refusal.text = why_over();
  } else {
    refusal = cause;
    refusal.code = DSC_ERR_REVOKED;
    refusal.text =
        "the communicator failed before: " + (cause.operation.empty() ? "" : cause.operation + ": ") +
        cause.text;
  }
  refusal.group = id();
  return refusal;
}

Failure CommState::caused_here(const char* operation, const char* what) const noexcept {
  Failure cause;
  cause.code = DSC_ERR_REVOKED;
  cause.rank = rank();
  cause.group = id();
  call_out([&] {
    cause.ranks = {rank()};
    cause.operation = operation;
    cause.text = describe_self() + what;
  });
  return cause;
}

Failure CommState::aborted() const noexcept { return caused_here("abort", " aborted the communicator"); }

Failure CommState::destroyed() const noexcept {
  return caused_here("destroy", " destroyed the communicator while operations were running");
}

std::string CommState::describe(OpKind kind, uint64_t number, const std::string& text) const {
  char where[160];
  std::snprintf(where, sizeof where,
                "%s number %" PRIu64 " of group \"%s\" on rank %d of %d: ", op_kind_name(kind), number,
                name().c_str(), rank(), size());
  return where + text;
}

std::string CommState::describe_self() const {
  return "rank " + std::to_string(rank()) + " (pid " + std::to_string(getpid()) + ")";
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
  call_out([&] {
    for (const auto& channel : channels()) channel->learn_of(cause);
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
