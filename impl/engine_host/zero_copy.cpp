#include "engine_host/zero_copy.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/process_guard.hpp"
#include "engine_host/chunk_counter.hpp"
#include "engine_host/readers.hpp"

namespace dsc {
namespace {

constexpr size_t kMinZeroCopyBytes = size_t{16} << 10;
constexpr size_t kCopyLineElements = 64;

}  // namespace

OthersMemory::OthersMemory(Group& group) noexcept
    : group_(group), entered_([&group] {
        group.state(group.rank()).working.fetch_add(1, std::memory_order_seq_cst);
        return !group.revoked();
      }()) {}

OthersMemory::~OthersMemory() {
  group_.state(group_.rank()).working.fetch_sub(1, std::memory_order_seq_cst);
  if (group_.revoked()) group_.notify_all_members();  // another rank may wait until this one has left
}

Progress fail_lost_writes(Group& group) {
  Failure cause;
  cause.code = DSC_ERR_PEER_STALLED;
  cause.text.add(
      "%s made its shared memory private because another rank, which does not run, may still write it",
      group.describe_member(group.rank()).c_str());
  group.revoke(cause);
  return Progress::kFailed;
}

// If the lengths are not known yet, returns true, so that all ranks publish their buffers.
bool ZeroCopy::worthwhile(const Group& group, const Transfer& transfer) noexcept {
  return !transfer.knows_all() ||
         transfer.bytes_of(transfer.longest) * transfer.parts >= group.tuning().zero_copy_min_bytes;
}

bool ZeroCopy::possible(const Group& group, const Transfer& transfer) noexcept {
  if (!worthwhile(group, transfer)) return false;
  for (int member = 0; member < transfer.size; ++member) {
    const Slot& slot = group.slot(member, group.epoch());
    if (transfer.sends(member) && slot.send.segment == 0) return false;
    if (transfer.pattern == Pattern::kAllReduce && slot.recv.segment == 0) return false;
  }
  return true;
}

// True if all ranks take parts of the copies: of a broadcast, in which the root would only wait, and of a
// gather, in which all others would. In an all-gather of much data, each part is then read only once for all
// receivers. The answer is equal on all ranks.
bool ZeroCopy::shares_copies(const Group& group, const Transfer& transfer) noexcept {
  if (transfer.size == 1 || transfer.bytes_of(transfer.longest) < kMinSharedCopyBytes) return false;
  if (transfer.pattern == Pattern::kAllGather) {
    const bool has_equal_blocks = !transfer.send_blocks && !transfer.recv_blocks && !transfer.recv_columns;
    if (!has_equal_blocks || transfer.bytes_of_all() < group.tuning().streaming_bytes) return false;
  } else if (transfer.pattern != Pattern::kBroadcast && transfer.pattern != Pattern::kGather) {
    return false;
  }
  for (int member = 0; member < transfer.size; ++member)
    if (may_be_target(transfer, member) && group.slot(member, group.epoch()).recv.segment == 0) return false;
  return true;
}

// Returns how many receive buffers are written by ranks that do not own them.
size_t ZeroCopy::target_count() const noexcept {
  if (transfer_.pattern == Pattern::kAllReduce) return sources_.size();
  if (transfer_.pattern == Pattern::kReduce)
    return group_.slot(transfer_.root, group_.epoch()).recv.segment != 0 ? 1 : 0;
  if (!shares_copies_) return 0;
  size_t count = 0;
  for (int member = 0; member < transfer_.size; ++member) count += may_be_target(transfer_, member) ? 1 : 0;
  return count;
}

ZeroCopy::ZeroCopy(Group& group, const Transfer& transfer, const SharedRange& send, const SharedRange& recv,
                   NonFinite* found)
    : group_(group),
      transfer_(transfer),
      spec_(transfer.reduce),
      found_(found),
      send_(send),
      recv_(recv),
      shares_copies_(shares_copies(group, transfer)),
      peer_buffers_(group),
      sources_(static_cast<size_t>(transfer.size)),
      targets_(target_count()) {
  if ((transfer.sends(transfer.rank) && !send.allocation) || (is_target(transfer.rank) && !recv.allocation))
    fail(DSC_ERR_PROTOCOL, "another program wrote into the slot of %s",
         group.describe_member(transfer.rank).c_str());
  std::fill_n(sources_.data(), sources_.size(), nullptr);
  std::fill_n(targets_.data(), targets_.size(), nullptr);
  // Stores that bypass the caches are only good for targets that are not in the caches. In place, the target
  // is also an input, so it is in the caches.
  if (transfer.bytes_of_all() >= group.tuning().streaming_bytes && !in_place())
    spec_.streamed = kAllDestinations;
  divide();
}

bool ZeroCopy::in_place() const noexcept {
  if (!transfer_.reduces()) return false;
  for (int member = 0; member < transfer_.size; ++member) {
    const Slot& slot = group_.slot(member, group_.epoch());
    if (is_target(member) && slot.send.segment == slot.recv.segment && slot.send.offset == slot.recv.offset)
      return true;
  }
  return transfer_.send == transfer_.recv;
}

// Divides the work into chunks, which ranks take as they become free. If a reduction is small and each rank
// has its own processor, divides it into one share per rank instead.
void ZeroCopy::divide() {
  const size_t bytes = transfer_.bytes_of(transfer_.longest);
  const size_t most = group_.tuning().zero_copy_chunk_bytes;
  const size_t least = std::min(kMinZeroCopyBytes, most);
  const auto lines = [](size_t elements) {
    return std::max(kCopyLineElements, elements / kCopyLineElements * kCopyLineElements);
  };
  const size_t members = sources_.size();
  if (shares_copies_) {
    division_ = Division::kClaims;
    const size_t blocks = collects(transfer_.pattern) ? members : 1;
    chunk_ = lines(std::clamp(bytes / (2 * members), least, most) / transfer_.element_bytes);
    chunk_ = std::max(chunk_, transfer_.longest / (kMaxChunks / blocks) + 1);
    chunks_ = (transfer_.longest + chunk_ - 1) / chunk_ * blocks;
    return;
  }
  if (!transfer_.reduces() || targets_.empty()) {
    chunk_ = lines(std::clamp(bytes, least, most) / transfer_.element_bytes);
    return;
  }
  const size_t fair = bytes / (2 * members);
  if (fair < least && bytes * members <= group_.tuning().divided_bytes) {
    division_ = Division::kShares;
    chunk_ = lines((transfer_.longest + members - 1) / members + kCopyLineElements - 1);
    next_chunk_ = static_cast<uint64_t>(transfer_.rank);
    return;
  }
  division_ = Division::kClaims;
  chunk_ = lines(std::clamp(fair, least, most) / transfer_.element_bytes);
  chunk_ = std::max(chunk_, transfer_.longest / kMaxChunks + 1);
  chunks_ = (transfer_.longest + chunk_ - 1) / chunk_;
}

// `location` is a copy of published values. It is checked here, because a corrupted or hostile peer may
// change them.
std::byte* ZeroCopy::locate(int member, SharedLocation location, const SharedRange& own, size_t elements) {
  if (member == transfer_.rank) return own.address();
  return peer_buffers_.find(member, location, transfer_.bytes_of(elements));
}

const std::byte* ZeroCopy::source(int member) {
  const void*& found = sources_[static_cast<size_t>(member)];
  if (!found) {
    // The own buffer as the program knows it, like the receive buffer, so that data in place is not copied
    // onto itself.
    const bool is_own = member == transfer_.rank && !is_target(member);
    found = is_own ? transfer_.send
                   : locate(member, group_.slot(member, group_.epoch()).send, send_,
                            transfer_.elements_read_of(member));
  }
  return static_cast<const std::byte*>(found);
}

const PerMember<void*>& ZeroCopy::targets() {
  if (targets_.empty() || targets_[0]) return targets_;
  const size_t elements = transfer_.count * (collects(transfer_.pattern) ? sources_.size() : 1);
  size_t found = targets_.size();  // the first one is set last, so that an error leaves it null
  for (int member = transfer_.size - 1; member >= 0; --member)
    if (is_target(member))
      targets_[--found] = locate(member, group_.slot(member, group_.epoch()).recv, recv_, elements);
  return targets_;
}

Progress ZeroCopy::step() {
  if (phase_ == Phase::kWork) {
    const Progress progress = work();
    if (progress != Progress::kDone) return progress;
    phase_ = division_ == Division::kClaims ? Phase::kAwaitChunks : Phase::kMeet;
    if (phase_ == Phase::kMeet) group_.arrive();  // this rank has read all its data, and done its share
  }
  return is_over() ? finish() : Progress::kPending;
}

// True if no other rank still reads from or writes to this rank's buffers.
bool ZeroCopy::is_over() noexcept {
  if (phase_ == Phase::kAwaitChunks)
    return chunks_complete(group_.record(group_.epoch()).done, group_.epoch(), chunks_);
  if (division_ == Division::kShares) return group_.all_arrived();
  return readers_arrived(group_, transfer_);
}

Progress ZeroCopy::finish() noexcept {
  const bool is_written = is_target(transfer_.rank);
  if ((send_.allocation && send_.allocation->detached.load()) ||
      (is_written && recv_.allocation->detached.load()))
    return fail_lost_writes(group_);
  if (is_written) recv_.allocation->take_ends(transfer_.recv, transfer_.recv_bytes);
  return Progress::kDone;
}

// Handles one chunk; returns kDone if there is no chunk left to take.
Progress ZeroCopy::work() {
  if (!transfer_.receives(transfer_.rank) && division_ == Division::kNone) return Progress::kDone;
  const OthersMemory others(group_);
  if (!others.entered()) return Progress::kFailed;
  if (transfer_.reduces()) return reduce_piece();
  return division_ == Division::kClaims ? copy_chunk() : copy_piece();
}

// Copies one part of one block to all receivers, whoever sends and receives it. At last, the root of a
// broadcast copies to its own receive buffer.
Progress ZeroCopy::copy_chunk() {
  EpochRecord& record = group_.record(group_.epoch());
  const uint64_t chunk = claim_chunk(record.claim, group_.epoch(), chunks_);
  const bool broadcasts = transfer_.pattern == Pattern::kBroadcast;
  if (chunk == kNoChunk) return is_target(transfer_.rank) || !broadcasts ? Progress::kDone : copy_piece();
  const size_t blocks = broadcasts ? 1 : sources_.size();
  const size_t block = chunk % blocks, first = chunk / blocks * chunk_;
  const size_t at = transfer_.bytes_of(first);
  const std::byte* const from = source(broadcasts ? transfer_.root : static_cast<int>(block));
  copy_to_targets(from + at, transfer_.bytes_of(block * transfer_.count) + at,
                  transfer_.bytes_of(std::min(chunk_, transfer_.count - first)));
  if (complete_chunks(record.done, group_.epoch(), 1, chunks_)) group_.notify_all_members();
  return Progress::kMoved;
}

// Copies to the same place in all targets, in pieces that stay in the cache until the last target.
void ZeroCopy::copy_to_targets(const std::byte* from, size_t at, size_t bytes) {
  constexpr size_t kPieceBytes = size_t{64} << 10;
  const size_t piece = targets().size() > 1 ? kPieceBytes : bytes;
  for (size_t done = 0; done < bytes; done += piece)
    for (void* const target : targets()) {
      std::byte* const to = static_cast<std::byte*>(target) + at + done;
      if (to != from + done)  // else this part is in place
        copy_bytes(to, from + done, std::min(piece, bytes - done), spec_.streamed > 0);
    }
}

Progress ZeroCopy::copy_piece() {
  for (; turn_ < transfer_.size; ++turn_, next_chunk_ = 0) {
    const int sender = (transfer_.rank + turn_) % transfer_.size;
    if (!transfer_.sends(sender)) continue;
    const Block block = transfer_.incoming(sender);
    const size_t at = static_cast<size_t>(next_chunk_) * chunk_;
    if (at >= block.count) continue;
    const std::byte* const start = source(sender);
    for_each_run(block, at, std::min(chunk_, block.count - at), [&](size_t from, size_t to, size_t run) {
      copy_bytes(transfer_.recv_at(to), start + transfer_.bytes_of(from), transfer_.bytes_of(run),
                 spec_.streamed > 0);
    });
    ++next_chunk_;
    return Progress::kMoved;
  }
  return Progress::kDone;
}

Progress ZeroCopy::reduce_piece() {
  EpochRecord& record = group_.record(group_.epoch());
  const bool claims = division_ == Division::kClaims;
  const Block block = transfer_.incoming(transfer_.rank);
  const uint64_t chunk = claims ? claim_chunk(record.claim, group_.epoch(), chunks_) : next_chunk_++;
  if (chunk == kNoChunk || chunk * chunk_ >= block.count) return Progress::kDone;
  const size_t first = chunk * chunk_;
  for_each_run(block, first, std::min(chunk_, block.count - first),
               [&](size_t from, size_t to, size_t run) { reduce_elements(from, to, run); });
  if (division_ == Division::kShares) return Progress::kDone;
  if (claims && complete_chunks(record.done, group_.epoch(), 1, chunks_)) group_.notify_all_members();
  return Progress::kMoved;
}

void ZeroCopy::reduce_elements(size_t index, size_t first, size_t elements) {
  const size_t offset = transfer_.bytes_of(index);
  PerMember<const void*> from(sources_.size());
  PerMember<void*> to(std::max<size_t>(targets_.size(), 1));
  for (size_t member = 0; member < sources_.size(); ++member)
    from[member] = source(static_cast<int>(member)) + offset;
  for (size_t i = 0; i < targets_.size(); ++i)
    to[i] = static_cast<std::byte*>(targets()[i]) + transfer_.bytes_of(first);
  if (targets_.empty()) to[0] = transfer_.recv_at(first);
  NonFinite found;
  reduce(spec_, from.data(), transfer_.size, to.data(), static_cast<int>(to.size()), elements,
         found_ ? &found : nullptr);
  if (found_) found_->add(found, index);
}

bool Departure::accessors_left(bool& only_other_processes) const noexcept {
  bool any = false;
  only_other_processes = true;
  for (int member = 0; member < group_.size(); ++member) {
    if (member == group_.rank() || group_.state(member).working.load(std::memory_order_seq_cst) == 0)
      continue;
    const PeerProcess& process = group_.process_of(member);
    if (process.gone.load() != DSC_OK) continue;  // the process has ended, so it no longer writes
    any = true;
    if (process.own) only_other_processes = false;  // a thread of this process shares the mapping
  }
  return any;
}

bool Departure::done(const SharedRange& send, size_t send_bytes, const SharedRange& recv,
                     size_t recv_bytes) noexcept {
  bool only_other_processes = true;
  if (!accessors_left(only_other_processes)) return true;
  if (!only_other_processes || !patience_.passed()) return false;
  const bool detached = call_out([&] {
    detach(send, send_bytes);
    detach(recv, recv_bytes);
  });
  if (!detached) patience_ = Deadline::after_ms(100);  // memory was short; try again later
  return detached;
}

void Departure::detach(const SharedRange& range, size_t bytes) {
  if (bytes == 0 || !range.allocation) return;
  range.allocation->detach(range.allocation->address_of(range.location.offset), bytes);
  log(DSC_LOG_LEVEL_WARN,
      "%zu bytes of shared memory became private to this process, because a rank that does not run may still "
      "write them",
      bytes);
}

}  // namespace dsc
