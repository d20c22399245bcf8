#include "comm/comm_state.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "base/process_guard.hpp"
#include "comm/engine.hpp"
#include "comm/group_ids.hpp"

namespace dsc {

CommState::CommState(CommIdentity identity, LocalMembers local, std::shared_ptr<const WorldInfo> info,
                     int timeout_ms)
    : identity_(std::move(identity)),
      local_(std::move(local)),
      host_(local_.group ? &local_.group->host() : nullptr),
      info_(std::move(info)),
      timeout_ms_(timeout_ms) {}

int CommState::group_rank(int global_rank) const noexcept {
  const auto found = std::ranges::find(identity_.global_ranks, global_rank);
  return found == identity_.global_ranks.end() ? kNoRank
                                               : static_cast<int>(found - identity_.global_ranks.begin());
}

uint64_t CommState::next_id() noexcept { return mix_id(id(), children_.fetch_add(1)); }

std::string CommState::child_name() const { return name() + "/" + std::to_string(children_.load()); }

const char* CommState::why_closed() const noexcept {
  if (host_ && host_->ended()) return "its world was finalized";
  if (finalized()) return "the communicator was finalized";
  return left() ? "the communicator was destroyed" : "this rank finalizes the world";
}

void CommState::expect_open() const {
  if (has_left_or_finalizes()) fail(DSC_ERR_STATE, "%s", why_closed());
}

Failure CommState::refusal(const Failure& cause) const noexcept {
  Failure refusal;
  if (has_left_or_finalizes()) {
    refusal.code = DSC_ERR_STATE;
    refusal.text = why_closed();
  } else {
    refusal = cause;
    refusal.code = DSC_ERR_REVOKED;
    refusal.text = "the communicator failed earlier: ";
    if (!cause.operation.empty()) refusal.text.add("%s: ", cause.operation.c_str());
    refusal.text += cause.text;
  }
  refusal.set_group(id(), name());
  return refusal;
}

Failure CommState::caused_here(const char* operation, const char* what) const noexcept {
  Failure cause;
  cause.code = DSC_ERR_REVOKED;
  cause.ranks = {rank()};
  cause.has_user_ranks = true;
  cause.set_group(id(), name());
  cause.operation = operation;
  cause.text.add("%s%s", describe_self().c_str(), what);
  return cause;
}

Failure CommState::aborted() const noexcept { return caused_here("abort", " aborted the communicator"); }

Failure CommState::destroyed() const noexcept {
  return caused_here("destroy", " destroyed the communicator while operations were running");
}

void CommState::name_operation(Failure& failure, const char* operation, uint64_t sequence) const noexcept {
  FixedText<224> where;
  where.add("%s of group \"%s\" on rank %d of %d: ", numbered(operation, sequence).c_str(), name().c_str(),
            rank(), size());
  // In a mismatch, ranks called different operations with the same sequence number, so only the number is
  // compared.
  const bool is_first = failure.sequence == sequence && (failure.code == DSC_ERR_MISMATCH ||
                                                         failure.operation == std::string_view(operation));
  const bool is_of_another = (failure.code == DSC_ERR_TIMEOUT || failure.code == DSC_ERR_MISMATCH) &&
                             failure.sequence != 0 && !is_first;
  // Name the other operation, unless the text already does.
  if (is_of_another && !std::string_view(failure.text).starts_with(failure.operation))
    where.add("%s failed: ", numbered(failure.operation, failure.sequence).c_str());
  const auto text = std::exchange(failure.text, where);
  failure.text += text;
  failure.set_group(id(), name());
  failure.operation = operation;
  failure.sequence = sequence;
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
  Failure there = cause;  // the failed operation does not belong to the channel
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
