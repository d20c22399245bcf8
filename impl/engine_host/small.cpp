#include "engine_host/small.hpp"

#include <algorithm>
#include <cstring>

#include "dtype/dtype.hpp"
#include "engine_host/per_member.hpp"

namespace dsc {
namespace {

Pattern pattern_of_call(const Call& call) noexcept {
  return call.count == 0 ? Pattern::kNothing : pattern_of(call.kind);
}

// Returns how much a rank may send to, or receive from, each other rank: what it publishes must be below the
// threshold of zero copy and fit into its stage, and the ranks must not divide a reduction.
size_t most_in_block(const Group& group, Pattern pattern) noexcept {
  const Tuning& tuning = group.tuning();
  const auto members = static_cast<size_t>(group.size());
  const size_t zero_copy = tuning.zero_copy_min_bytes > 0 ? tuning.zero_copy_min_bytes - 1 : 0;
  const size_t published = std::min({Group::kMostSmallBytes, tuning.stage_bytes / 2, zero_copy});
  if (divides(pattern)) return published / members;
  return reduces(pattern) ? std::min(published, tuning.direct_bytes / members) : published;
}

}  // namespace

bool SmallCollective::suits(const Group& group, const Call& call) noexcept {
  const size_t most = most_in_block(group, pattern_of_call(call));
  return call.count <= most && call.count * dtype_bytes(call.dtype) <= most &&
         call.nonfinite == NonFiniteCheck::kOff && !call.send_blocks && !call.recv_blocks && !call.columns;
}

SmallCollective::SmallCollective(Group& group, const Call& call, uint64_t sequence) noexcept
    : ComparedOperation(group, call, sequence),
      pattern_(pattern_of_call(call)),
      block_(pattern_ == Pattern::kNothing ? 0 : call.count * dtype_bytes(call.dtype)),
      shown_(divides(pattern_) ? block_ * static_cast<size_t>(group.size()) : block_) {
  const bool is_root = group.rank() == call.root;
  const auto members = static_cast<size_t>(group.size());
  set_bytes(is_root || !only_root_sends(pattern_) ? shown_ : 0, !is_root && only_root_receives(pattern_) ? 0
                                                                : collects(pattern_) ? block_ * members
                                                                                     : block_);
}

// If a member is still in the previous operation, or the group has failed, this does nothing: step() handles
// both cases.
void SmallCollective::publish() noexcept {
  if (group_.all_arrived() && !group_.revoked()) arrive();
}

Progress SmallCollective::step() {
  if (!arrived_) {
    if (!group_.all_arrived()) return pending();
    if (group_.revoked()) return Progress::kFailed;
    arrive();
  }
  if (!all_here()) return pending();
  met();
  if (!calls_agree()) return Progress::kFailed;
  if (pattern_ != Pattern::kNothing) read();
  group_.prepare_arrival(shown_);
  if (shown_ <= kSlotDataBytes && !call_.user) ends_when_met();
  return Progress::kDone;
}

// The last rank to arrive may have continued and revoked the group since this rank checked. The operation is
// still complete, because each rank has published its data together with its call.
bool SmallCollective::all_here() noexcept {
  for (int looks = eager_looks(group_); looks > 0; --looks)
    if (group_.all_arrived()) return true;
  return group_.revoked() && group_.all_arrived();
}

// Returns whether another rank reads what this rank publishes.
bool SmallCollective::shows() const noexcept {
  const bool is_root = group_.rank() == call_.root;
  return is_root ? !only_root_receives(pattern_) : !only_root_sends(pattern_);
}

void SmallCollective::arrive() noexcept {
  Slot& slot = describe_call();
  slot.has_payload = 1;
  if (shown_ > 0 && shows())
    std::memcpy(group_.data(group_.rank(), group_.epoch() + 1, shown_), call_.send, shown_);
  group_.arrive();
  arrived_ = true;
}

// Returns the address of the block that a rank has for this rank.
const std::byte* SmallCollective::block_from(int sender) const noexcept {
  const auto* const first = sender == group_.rank() ? static_cast<const std::byte*>(call_.send)
                                                    : group_.data(sender, group_.epoch(), shown_);
  return divides(pattern_) ? first + block_ * static_cast<size_t>(group_.rank()) : first;
}

void SmallCollective::read() {
  move_by(Algorithm::kDirect);
  if (group_.rank() != call_.root && only_root_receives(pattern_)) return;
  if (reduces(pattern_))
    reduce();
  else
    copy_blocks();
}

void SmallCollective::reduce() {
  const int members = group_.size();
  PerMember<const void*> sources(static_cast<size_t>(members));
  for (int member = 0; member < members; ++member) sources[static_cast<size_t>(member)] = block_from(member);
  const ReduceSpec spec{call_.dtype,    call_.op, call_.op == DSC_OP_AVG ? members : 1,
                        call_.prescale, 0,        call_.user.get()};
  dsc::reduce(spec, sources.data(), members, &call_.recv, 1, call_.count);
}

void SmallCollective::copy_blocks() const noexcept {
  for (int sender = 0; sender < group_.size(); ++sender) {
    if (only_root_sends(pattern_) && sender != call_.root) continue;
    std::byte* const target =
        static_cast<std::byte*>(call_.recv) + (collects(pattern_) ? block_ * static_cast<size_t>(sender) : 0);
    const std::byte* const source = block_from(sender);
    if (source != target) std::memcpy(target, source, block_);
  }
}

}  // namespace dsc
