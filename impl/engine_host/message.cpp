#include "engine_host/message.hpp"

#include <algorithm>
#include <cstring>

#include "comm/call_signature.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"
#include "engine_host/chunk_counter.hpp"
#include "engine_host/single_copy.hpp"
#include "engine_host/zero_copy.hpp"

namespace dsc {

Message::Message(Group& group, const Call& call, uint64_t sequence) noexcept
    : Operation(group, call, sequence),
      peer_(call.root),
      bytes_(call.count * dtype_bytes(call.dtype)),
      is_short_(bytes_ <= group.geometry().chunk_bytes && bytes_ < group.tuning().zero_copy_min_bytes),
      peer_buffers_(group) {
  set_bytes(call.kind == OpKind::kSend ? bytes_ : 0, call.kind == OpKind::kSend ? 0 : bytes_);
  const size_t chunk_bytes = group.geometry().chunk_bytes;
  if (!is_short_) chunks_ = (bytes_ + chunk_bytes - 1) / chunk_bytes;
}

void Message::describe_call(MessagePost& mine) noexcept {
  mine.call = fields_of(call_);
  mine.fingerprint = fingerprint_of_message(group_.id(), sequence_, mine.call);
  const void* buffer = call_.kind == OpKind::kSend ? call_.send : call_.recv;
  const bool worthwhile = bytes_ > 0 && bytes_ >= group_.tuning().zero_copy_min_bytes;
  if (worthwhile) range_ = find_shared_with(group_, peer_, buffer, bytes_);
  if (range_.allocation && call_.kind == OpKind::kSend) range_.allocation->show_ends(buffer, bytes_);
  mine.location = range_.location;
  const bool offers = call_.kind == OpKind::kSend && !is_short_ && bytes_ > 0 &&
                      bytes_ >= group_.tuning().single_copy_min_bytes;
  mine.memory = offers ? readable_memory(buffer, bytes_) : ReadableMemory{0, 0};
}

// Checks for the peer early, while this rank's own store may still wait for the cache line: often the peer
// has already arrived.
void Message::post(MessagePost& mine) noexcept {
  mine.sequence.store(sequence_, std::memory_order_release);
  static_cast<void>(peer_is_here());
  std::atomic_thread_fence(
      std::memory_order_seq_cst);  // orders the store before the check for sleeping threads
  group_.notify_member(peer_);
}

// A peer that has finished a short message may have revoked the group since this rank checked. The message is
// complete nevertheless.
bool Message::comes_soon() const noexcept {
  for (int looks = eager_looks(group_); looks > 0; --looks)
    if (peer_is_here()) return true;
  return is_short_ && group_.revoked() && peer_is_here();
}

bool Message::verify(const MessagePost& mine, const MessagePost& theirs) {
  if (mine.fingerprint == theirs.fingerprint) return true;
  const auto end = [this](int member, CallFields fields) {  // its ranks are numbered as the user knows them
    fields.root = group_.shown_rank(fields.root);
    return MessageEnd{group_.shown_rank(member), fields};
  };
  revoke(DSC_ERR_MISMATCH, {std::min(group_.rank(), peer_), std::max(group_.rank(), peer_)},
         difference_of_ends(end(group_.rank(), mine.call), end(peer_, theirs.call)).text);
  return false;
}

Algorithm Message::path(const MessagePost& sender, const MessagePost& receiver) const noexcept {
  if (is_short_) return Algorithm::kStaged;
  if (sender.location.segment != 0 || receiver.location.segment != 0) return Algorithm::kZeroCopy;
  return sender.memory.address != 0 ? Algorithm::kSingleCopy : Algorithm::kStaged;
}

// If both ends can copy, the sender only helps with large messages.
bool Message::copies(const MessagePost& mine, const MessagePost& theirs) const noexcept {
  if (path_ != Algorithm::kZeroCopy || theirs.location.segment == 0) return false;
  return call_.kind == OpKind::kRecv || mine.location.segment == 0 || bytes_ >= kMinSharedCopyBytes;
}

// Two pieces for each end, within limits.
size_t Message::piece_bytes() const noexcept {
  constexpr size_t kPageBytes = 4096, kLeast = 16 * kPageBytes;
  const size_t most = group_.tuning().zero_copy_chunk_bytes;
  const size_t fair = std::clamp(bytes_ / 4 / kPageBytes * kPageBytes, std::min(kLeast, most), most);
  return std::max(fair, bytes_ / kMaxChunks + 1);
}

Progress Message::copy_piece(SendChannel& channel, SharedLocation theirs) {
  const OthersMemory others(group_);
  if (!others.entered()) return leave();
  const uint64_t piece = claim_chunk(channel.claim, sequence_, pieces());
  if (piece == kNoChunk) return Progress::kDone;
  std::byte* const theirs_at = peer_buffers_.find(peer_, theirs, bytes_);  // not before: see PeerBuffers
  const size_t at = piece * piece_bytes();
  const bool sends = call_.kind == OpKind::kSend;
  std::byte* const from = sends ? own_buffer() : theirs_at;
  std::byte* const to = sends ? theirs_at : own_buffer();
  copy_bytes(to + at, from + at, std::min(piece_bytes(), bytes_ - at), bypasses_caches());
  if (complete_chunks(channel.done, sequence_, 1, pieces())) group_.notify_member(peer_);
  return Progress::kMoved;
}

Progress Message::leave() noexcept {
  if (!group_.revoked()) return Progress::kPending;
  // An end that comes later finds the group revoked, and touches nothing. Nor does it on another path.
  const bool untouched = phase_ == Phase::kPosting || (phase_ == Phase::kMeeting && !peer_is_here()) ||
                         (phase_ == Phase::kMoving && path_ != Algorithm::kZeroCopy);
  if (untouched || !range_.allocation) return Progress::kFailed;
  phase_ = Phase::kLeaving;
  if (!departure_) departure_.emplace(group_);
  return departure_->done(range_, bytes_, {}, 0) ? Progress::kFailed : Progress::kPending;
}

size_t Message::chunk_length(uint64_t chunk) const noexcept {
  const size_t chunk_bytes = group_.geometry().chunk_bytes;
  return std::min(chunk_bytes, bytes_ - static_cast<size_t>(chunk) * chunk_bytes);
}

SendMessage::SendMessage(Group& group, const Call& call, uint64_t sequence) noexcept
    : Message(group, call, sequence),
      mine_(group.send_channel(group.rank(), call.root)),
      theirs_(group.recv_channel(group.rank(), call.root)) {}

bool SendMessage::peer_is_here() const noexcept {
  return theirs_.posts[sequence_ & 1].sequence.load(std::memory_order_acquire) >= sequence_;
}

// Writes the first two chunks before the receiver arrives, unless the receiver is still reading the previous
// message, which was short.
void SendMessage::produce() {
  if (is_short_ || theirs_.finished.load(std::memory_order_acquire) + 1 < sequence_) return;
  const uint64_t consumed = theirs_.consumed.load(std::memory_order_acquire) - base_;
  const uint64_t before = chunk_;
  while (chunk_ < chunks_ && chunk_ < consumed + 2) {
    copy_bytes(group_.chunk(group_.rank(), peer_, chunk_),
               static_cast<const std::byte*>(call_.send) + chunk_ * group_.geometry().chunk_bytes,
               chunk_length(chunk_));
    ++chunk_;
    mine_.produced.store(base_ + chunk_, std::memory_order_seq_cst);
  }
  if (chunk_ != before) group_.notify_member(peer_);
}

void SendMessage::publish() noexcept {
  if (group_.revoked()) return;
  MessagePost& mine = mine_.posts[sequence_ & 1];
  base_ = mine_.produced.load(std::memory_order_relaxed);
  describe_call(mine);
  if (is_short_ && bytes_ > 0)
    std::memcpy(short_data(group_.rank(), peer_, mine.data.data()), call_.send, bytes_);
  post(mine);
  const MessagePost& theirs = theirs_.posts[sequence_ & 1];
  const bool copies_directly = peer_is_here() && theirs.location.segment != 0;
  if (mine.location.segment == 0 && mine.memory.address == 0 && !copies_directly) produce();
  phase_ = Phase::kMeeting;
}

// No rank reads the chunks that were written before the path was known.
void SendMessage::withdraw_chunks() noexcept {
  if (chunk_ > 0) mine_.produced.store(base_, std::memory_order_relaxed);
  chunk_ = 0;
}

Progress SendMessage::step() {
  MessagePost& mine = mine_.posts[sequence_ & 1];
  const MessagePost& theirs = theirs_.posts[sequence_ & 1];
  switch (phase_) {
    case Phase::kPosting:
      publish();
      if (phase_ == Phase::kPosting) return Progress::kFailed;
      [[fallthrough]];
    case Phase::kMeeting:
      if (!comes_soon()) return leave();
      met();
      if (!verify(mine, theirs)) return leave();
      move_by(path_ = path(mine, theirs));
      if (is_short_) return end_short();
      all_taken_ = !copies(mine, theirs);
      if (path_ != Algorithm::kStaged) withdraw_chunks();
      phase_ = Phase::kMoving;
      [[fallthrough]];
    case Phase::kMoving: {
      const uint64_t before = chunk_;
      if (path_ == Algorithm::kStaged) produce();
      if (!all_taken_) {
        const Progress progress = copy_piece(mine_, theirs.location);
        if (progress == Progress::kMoved) return progress;
        all_taken_ = progress == Progress::kDone;
      }
      if (theirs_.finished.load(std::memory_order_acquire) >= sequence_) return Progress::kDone;
      return chunk_ != before ? Progress::kMoved : leave();
    }
    default:
      return leave();
  }
}

// The sender does not wait: the receiver reads a short message from the memory in which it was published.
Progress SendMessage::end_short() noexcept {
  if (bytes_ <= kSlotDataBytes) ends_when_met();
  Group::own_lines(&mine_.posts[(sequence_ + 1) & 1], 1);
  if (bytes_ > kSlotDataBytes) Group::own_lines(group_.chunk(group_.rank(), peer_, sequence_ + 1), bytes_);
  return Progress::kDone;
}

RecvMessage::RecvMessage(Group& group, const Call& call, uint64_t sequence) noexcept
    : Message(group, call, sequence),
      mine_(group.recv_channel(call.root, group.rank())),
      theirs_(group.send_channel(call.root, group.rank())) {}

bool RecvMessage::peer_is_here() const noexcept {
  return theirs_.posts[sequence_ & 1].sequence.load(std::memory_order_acquire) >= sequence_;
}

Progress RecvMessage::take_short() noexcept {
  MessagePost& theirs = theirs_.posts[sequence_ & 1];
  if (bytes_ > 0) std::memcpy(call_.recv, short_data(peer_, group_.rank(), theirs.data.data()), bytes_);
  finish();
  if (bytes_ <= kSlotDataBytes) ends_when_met();
  Group::own_lines(&mine_.posts[(sequence_ + 1) & 1], 1);
  return Progress::kDone;
}

Progress RecvMessage::consume() {
  const uint64_t before = chunk_;
  for (; chunk_ < chunks_; ++chunk_) {
    if (theirs_.produced.load(std::memory_order_acquire) < base_ + chunk_ + 1)
      return chunk_ == before ? leave() : Progress::kMoved;
    take(static_cast<std::byte*>(call_.recv) + chunk_ * group_.geometry().chunk_bytes,
         group_.chunk(peer_, group_.rank(), chunk_), chunk_length(chunk_), bypasses_caches());
    mine_.consumed.store(base_ + chunk_ + 1, std::memory_order_seq_cst);
    group_.notify_member(peer_);
  }
  finish();
  return Progress::kDone;
}

// Takes pieces of a message in shared memory, until all are copied.
Progress RecvMessage::take_pieces() {
  if (!all_taken_) {
    const Progress progress = copy_piece(theirs_, theirs_.posts[sequence_ & 1].location);
    if (progress != Progress::kDone) return progress;
    all_taken_ = true;
  }
  if (!chunks_complete(theirs_.done, sequence_, pieces())) return leave();
  if (group_.revoked()) return leave();  // a sender that gave up may have changed the data
  if (range_.allocation) {
    if (range_.allocation->detached.load()) return fail_lost_writes(group_);
    range_.allocation->take_ends(call_.recv, bytes_);
  }
  finish();
  return Progress::kDone;
}

// Lets the kernel copy a piece of the sender's buffer.
Progress RecvMessage::read_piece() {
  constexpr size_t kPieceBytes = size_t{512} << 10;
  const size_t at = chunk_ * kPieceBytes;
  const ReadableMemory memory = theirs_.posts[sequence_ & 1].memory;
  if (memory.bytes != bytes_)
    fail(DSC_ERR_PROTOCOL, "%s announced a buffer of another length", group_.describe_member(peer_).c_str());
  PeerRead parts;
  parts.add(static_cast<std::byte*>(call_.recv) + at, memory.address + at,
            std::min(kPieceBytes, bytes_ - at));
  const Progress progress = [&] {
    const Busy busy(group_);
    return read_member(group_, peer_, parts);
  }();
  if (progress == Progress::kPending) return leave();
  if (progress == Progress::kFailed) return progress;
  if (++chunk_ * kPieceBytes < bytes_) return Progress::kMoved;
  if (group_.revoked()) return leave();  // a sender that gave up may have changed the data
  finish();
  return Progress::kDone;
}

void RecvMessage::finish() noexcept {
  mine_.finished.store(sequence_, std::memory_order_seq_cst);
  group_.notify_member(peer_);
}

void RecvMessage::publish() noexcept {
  if (group_.revoked()) return;
  MessagePost& mine = mine_.posts[sequence_ & 1];
  base_ = mine_.consumed.load(std::memory_order_relaxed);
  describe_call(mine);
  post(mine);
  phase_ = Phase::kMeeting;
}

Progress RecvMessage::step() {
  MessagePost& mine = mine_.posts[sequence_ & 1];
  const MessagePost& theirs = theirs_.posts[sequence_ & 1];
  switch (phase_) {
    case Phase::kPosting:
      publish();
      if (phase_ == Phase::kPosting) return Progress::kFailed;
      [[fallthrough]];
    case Phase::kMeeting:
      if (!comes_soon()) return leave();
      met();
      if (!verify(mine, theirs)) return leave();
      move_by(path_ = path(theirs, mine));
      if (is_short_) return take_short();
      all_taken_ = !copies(mine, theirs);
      phase_ = Phase::kMoving;
      [[fallthrough]];
    case Phase::kMoving:
      if (path_ == Algorithm::kZeroCopy) return take_pieces();
      return path_ == Algorithm::kSingleCopy ? read_piece() : consume();
    default:
      return leave();
  }
}

}  // namespace dsc
