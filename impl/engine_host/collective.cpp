#include "engine_host/collective.hpp"

#include <algorithm>
#include <type_traits>

namespace dsc {

Collective::Collective(Group& group, const Call& call, uint64_t sequence) noexcept
    : ComparedOperation(group, call, sequence), transfer_(call, group.rank(), group.size()) {
  set_bytes(transfer_.send_bytes, transfer_.recv_bytes);
}

void Collective::enter() {
  if (phase_ != Phase::kQueued) return;  // arriving twice would count as the arrival at the next operation
  if (!group_.all_arrived() || group_.revoked()) return;
  arrive();
  phase_ = Phase::kArriving;
}

Progress Collective::step() {
  switch (phase_) {
    case Phase::kQueued:
      if (!group_.all_arrived()) return pending();  // a member is still in the previous operation
      if (group_.revoked()) return Progress::kFailed;
      arrive();
      phase_ = Phase::kArriving;
      [[fallthrough]];
    case Phase::kArriving:
      if (!group_.all_arrived() && !all_arrived_before_the_end()) return pending();
      met();
      if (!verify()) return leave();
      choose_path();
      phase_ = Phase::kMoving;
      [[fallthrough]];
    case Phase::kMoving:
      if (const Progress progress = move(); progress != Progress::kDone) return progress;
      if (call_.nonfinite == NonFiniteCheck::kOff || transfer_.pattern == Pattern::kNothing)
        return Progress::kDone;
      phase_ = Phase::kMoved;
      [[fallthrough]];
    case Phase::kMoved:
      if (!group_.all_arrived()) return pending();  // waits for the end of the data movement on all ranks
      show_found();
      phase_ = Phase::kComparing;
      [[fallthrough]];
    case Phase::kComparing:
      return group_.all_arrived() ? compare_found() : pending();
    case Phase::kLeaving:
      return leave();
  }
  return Progress::kFailed;
}

// The last rank to arrive may have continued and revoked the group since this rank checked. If there is no
// data to move, the operation is still complete on all ranks.
bool Collective::all_arrived_before_the_end() const noexcept {
  return group_.revoked() && std::holds_alternative<std::monostate>(mover_) &&
         transfer_.pattern == Pattern::kNothing && group_.all_arrived();
}

Progress Collective::move() {
  const auto step = [this](auto& mover) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(mover)>, std::monostate>)
      return Progress::kDone;
    else {
      const Progress progress = mover.step();
      awaits_arrival_ = progress == Progress::kPending && mover.awaits_arrival();
      return progress;
    }
  };
  const Progress progress = std::visit(step, mover_);
  if (progress == Progress::kFailed) return leave();
  return progress == Progress::kPending ? pending() : progress;
}

// Each rank has checked a part of the inputs. One more barrier round publishes what each rank has found.
void Collective::show_found() noexcept {
  Slot& slot = group_.next_slot();
  slot.nonfinite_count = found_.count;
  slot.nonfinite_index = found_.index;
  slot.nonfinite_rank = found_.source;
  group_.arrive();
}

Progress Collective::compare_found() {
  found_ = {};
  for (int member = 0; member < group_.size(); ++member) {
    const Slot& slot = group_.slot(member, group_.epoch());
    const NonFinite part{slot.nonfinite_count, static_cast<int>(slot.nonfinite_rank), slot.nonfinite_index};
    found_.add(part, 0);
  }
  if (call_.nonfinite != NonFiniteCheck::kFail || found_.count == 0) return Progress::kDone;
  return fail_nonfinite();
}

void Collective::arrive() {
  Slot& slot = describe_call();
  slot.send = slot.recv = {0, 0};
  if (transfer_.pattern != Pattern::kNothing && ZeroCopy::worthwhile(group_, transfer_)) expose_buffers(slot);
  exposed_ = slot.send.segment != 0 || slot.recv.segment != 0;
  const bool offered = SingleCopy::offer(group_, transfer_, slot);
  payload_shown_ = slot.send.segment == 0 && !offered;
  slot.has_payload = payload_shown_ ? 1 : 0;
  if (payload_shown_ && transfer_.pattern != Pattern::kNothing) stage().fill_first();
  if (!transfer_.knows_all()) {
    uint64_t* lengths = group_.lengths(group_.rank(), group_.epoch() + 1);
    std::copy(call_.send_blocks->lengths.begin(), call_.send_blocks->lengths.end(), lengths);
    std::copy(call_.recv_blocks->lengths.begin(), call_.recv_blocks->lengths.end(), lengths + transfer_.size);
  }
  group_.arrive();
}

void Collective::expose_buffers(Slot& slot) {
  if (transfer_.sends(transfer_.rank) && !ZeroCopy::overwrites_senders(transfer_))
    send_range_ = find_shared(group_, transfer_.send, transfer_.send_bytes);
  if (ZeroCopy::shows_recv(transfer_)) {
    const bool in_place = transfer_.send == transfer_.recv && transfer_.send_bytes == transfer_.recv_bytes;
    recv_range_ = send_range_.allocation && in_place
                      ? send_range_
                      : find_shared(group_, transfer_.recv, transfer_.recv_bytes);
  }
  if (send_range_.allocation) send_range_.allocation->show_ends(transfer_.send, transfer_.send_bytes);
  slot.send = send_range_.location;
  slot.recv = recv_range_.location;
}

bool Collective::verify() { return calls_agree() && (transfer_.knows_all() || verify_blocks()); }

// For every pair of ranks, the sent length must equal the expected one. Every rank checks all pairs, so that
// all ranks get the same result before data is written. The lengths are copied first, because a corrupted or
// hostile peer may change them during the check.
bool Collective::verify_blocks() {
  const auto members = static_cast<size_t>(transfer_.size);
  const auto own = static_cast<size_t>(transfer_.rank);
  std::vector<uint64_t> lengths(2 * members * members);
  for (size_t member = 0; member < members; ++member)
    std::copy_n(group_.lengths(static_cast<int>(member), group_.epoch()), 2 * members,
                &lengths[member * 2 * members]);
  size_t longest = 0;
  std::vector<Transfer::Sender> senders(members, Transfer::Sender{0, 0});
  for (size_t sender = 0; sender < members; ++sender)
    for (size_t receiver = 0; receiver < members; ++receiver) {
      const uint64_t sent = lengths[sender * 2 * members + receiver];
      const uint64_t expected = lengths[receiver * 2 * members + members + sender];
      if (sent != expected) {
        const auto from = static_cast<int32_t>(sender), to = static_cast<int32_t>(receiver);
        revoke(DSC_ERR_MISMATCH, {std::min(from, to), std::max(from, to)},
               "rank " + std::to_string(group_.shown_rank(from)) + " sends " + std::to_string(sent) +
                   " elements to rank " + std::to_string(group_.shown_rank(to)) + ", which expects " +
                   std::to_string(expected));
        return false;
      }
      longest = std::max<size_t>(longest, sent);
      if (receiver == own) senders[sender].from = senders[sender].total;
      if (__builtin_add_overflow(senders[sender].total, sent, &senders[sender].total) ||
          senders[sender].total > SIZE_MAX / 2 / transfer_.element_bytes)
        fail(DSC_ERR_PROTOCOL, "%s announced lengths whose sum overflows",
             group_.describe_member(static_cast<int>(sender)).c_str());
    }
  transfer_.learn(std::move(senders), longest);
  return true;
}

void Collective::choose_path() {
  if (transfer_.pattern == Pattern::kNothing) {  // all blocks turned out to be empty
    mover_.emplace<std::monostate>();
    return;
  }
  if (ZeroCopy::possible(group_, transfer_)) {
    check_own_slot();
    mover_.emplace<ZeroCopy>(group_, transfer_, send_range_, recv_range_, report());
    move_by(Algorithm::kZeroCopy);
    return;
  }
  if (SingleCopy::possible(group_, transfer_)) {
    mover_.emplace<SingleCopy>(group_, transfer_);
    move_by(Algorithm::kSingleCopy);
    return;
  }
  bool all_shown = true;
  for (int member = 0; member < group_.size(); ++member)
    all_shown = all_shown && group_.slot(member, group_.epoch()).has_payload != 0;
  Staged& staged = stage();
  if (all_shown) staged.find_shown();
  move_by(staged.algorithm());
}

// The path was derived from the slots. A corrupted or hostile peer may have changed any slot, even this
// rank's own.
void Collective::check_own_slot() const {
  const Slot& own = group_.slot(group_.rank(), group_.epoch());
  if (own.send.segment == send_range_.location.segment && own.recv.segment == recv_range_.location.segment)
    return;
  fail(DSC_ERR_PROTOCOL, "another program wrote into the slot of %s",
       group_.describe_member(group_.rank()).c_str());
}

Staged& Collective::stage() {
  if (auto* staged = std::get_if<Staged>(&mover_)) return *staged;
  return mover_.emplace<Staged>(group_, transfer_, report());
}

NonFinite* Collective::report() noexcept {
  return call_.nonfinite != NonFiniteCheck::kOff ? &found_ : nullptr;
}

Progress Collective::pending() {
  if (!group_.revoked()) return Progress::kPending;
  return leave();
}

// After all ranks have arrived, this rank waits until no other rank works on its memory. A rank that works on
// it first saw that all had arrived, then published that it works, and then found the group not revoked. So
// if a rank has still not arrived after the revocation, no rank works for this operation.
Progress Collective::leave() {
  if (phase_ == Phase::kArriving && group_.misses_somebody()) return Progress::kFailed;
  if (phase_ != Phase::kQueued && exposed_) {
    phase_ = Phase::kLeaving;
    if (!departure_) departure_.emplace(group_);
    if (!departure_->done(send_range_, transfer_.send_bytes, recv_range_, transfer_.recv_bytes))
      return Progress::kPending;
  }
  return Progress::kFailed;
}

}  // namespace dsc
