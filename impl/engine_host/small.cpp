#include "engine_host/small.hpp"

#include <cstring>

#include "dtype/dtype.hpp"
#include "engine_host/per_member.hpp"
#include "engine_host/staged.hpp"

namespace dsc {
namespace {

Pattern pattern_of_call(const Call& call) noexcept {
  return call.count == 0 ? Pattern::kNothing : pattern_of(call.kind);
}

}  // namespace

bool SmallCollective::fits(const Group& group, Pattern pattern, size_t block) noexcept {
  if (block == 0) return true;
  if (block > Group::kMostSmallBytes) return false;
  const Tuning& tuning = group.tuning();
  const size_t of_all = block * static_cast<size_t>(group.size());
  const size_t published = divides(pattern) ? of_all : block;
  return published <= Group::kMostSmallBytes && published < tuning.zero_copy_min_bytes &&
         published <= tuning.stage_bytes / 2 &&
         (of_all <= tuning.direct_bytes || !Staged::may_divide(pattern, group.size()));
}

bool SmallCollective::suits(const Group& group, const Call& call) noexcept {
  return call.count <= Group::kMostSmallBytes && call.nonfinite == NonFiniteCheck::kOff &&
         !call.send_blocks && !call.recv_blocks && !call.columns &&
         fits(group, pattern_of_call(call), call.count * dtype_bytes(call.dtype));
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
  group_.prepare_arrival(shows() ? shown_ : 0);
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
