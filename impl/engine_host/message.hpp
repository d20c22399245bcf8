// One message between two ranks. Neither end completes before the other end has arrived.
//
// A short message is published together with the call: in the post itself, or in one of the two chunks, which
// messages use in turn. Its sender is done as soon as the calls agree. It overwrites that memory only two
// messages later, and the message in between completes only after the receiver has read this one. A longer
// message passes through both chunks, and its sender waits for the receiver. If a buffer is in memory that
// both ends have mapped (dsc_mem_alloc() or dsc_mem_register()), the other end copies directly from it or to
// it. If both are, the receiver copies, and both ends do if the message is large.
#pragma once

#include <optional>

#include "engine_host/operation.hpp"
#include "engine_host/zero_copy.hpp"

namespace dsc {

// The common part of both ends of a message.
class Message : public Operation {
 public:
  Message(Group& group, const Call& call, uint64_t sequence) noexcept;

 protected:
  enum class Phase { kPosting, kMeeting, kMoving, kLeaving };

  virtual bool peer_is_here() const noexcept = 0;
  bool comes_soon() const noexcept;
  bool misses(int member) const noexcept override { return member == peer_ && !peer_is_here(); }
  bool suspects(int member) const noexcept override { return member == peer_; }

  void describe_call(MessagePost& mine) noexcept;
  // Publishes this end, which describe_call() has filled in.
  void post(MessagePost& mine) noexcept;
  // Returns where the sender puts a short message.
  std::byte* short_data(int sender, int receiver, std::byte* in_post) const noexcept {
    return bytes_ <= kSlotDataBytes ? in_post : group_.chunk(sender, receiver, sequence_);
  }
  // Returns true if the other end posted an equal call; otherwise it revokes the group.
  bool verify(const MessagePost& mine, const MessagePost& theirs);
  // Returns how the data moves, once the calls agree. Both ends get the same answer.
  Algorithm path(const MessagePost& sender, const MessagePost& receiver) const noexcept;
  // Returns whether this end copies pieces of a message between buffers.
  bool copies(const MessagePost& mine, const MessagePost& theirs) const noexcept;
  size_t piece_bytes() const noexcept;
  uint64_t pieces() const noexcept { return (bytes_ + piece_bytes() - 1) / piece_bytes(); }
  // Copies one piece from buffer to buffer; returns kDone if none is left. `channel` is that of the sender,
  // and `theirs` is the buffer of the peer.
  Progress copy_piece(SendChannel& channel, SharedLocation theirs);
  std::byte* own_buffer() const noexcept {
    if (range_.allocation) return range_.address();
    return const_cast<std::byte*>(
        static_cast<const std::byte*>(call_.kind == OpKind::kSend ? call_.send : call_.recv));
  }
  // Keeps waiting. After a failure, waits until the other end no longer accesses this rank's memory.
  Progress leave() noexcept;
  size_t chunk_length(uint64_t chunk) const noexcept;
  // True if the receiver's buffer should be written without caching.
  bool bypasses_caches() const noexcept { return 2 * bytes_ >= group_.tuning().streaming_bytes; }

  const int peer_;
  const size_t bytes_;
  const bool is_short_;
  SharedRange range_;  // this rank's buffer, if the peer has mapped it
  PeerBuffers peer_buffers_;
  uint64_t chunks_ = 0;
  uint64_t base_ = 0;       // number of chunks of all messages before this one
  uint64_t chunk_ = 0;      // the next chunk or, if the kernel copies, the next piece
  bool all_taken_ = false;  // no piece is left for this end, or this end copies none
  Algorithm path_ = Algorithm::kStaged;
  Phase phase_ = Phase::kPosting;
  std::optional<Departure> departure_;
};

// The sender's end of a message.
class SendMessage final : public Message {
 public:
  SendMessage(Group& group, const Call& call, uint64_t sequence) noexcept;
  void publish() noexcept;
  Progress step() override;
  Progress depart() override { return leave(); }

 private:
  bool peer_is_here() const noexcept override;
  void produce();
  void withdraw_chunks() noexcept;
  Progress end_short() noexcept;

  SendChannel& mine_;
  RecvChannel& theirs_;
};

// The receiver's end of a message.
class RecvMessage final : public Message {
 public:
  RecvMessage(Group& group, const Call& call, uint64_t sequence) noexcept;
  void publish() noexcept;
  Progress step() override;
  Progress depart() override { return leave(); }

 private:
  bool peer_is_here() const noexcept override;
  Progress consume();
  Progress take_short() noexcept;
  Progress take_pieces();
  Progress read_piece();
  void finish() noexcept;

  RecvChannel& mine_;
  SendChannel& theirs_;
};

}  // namespace dsc
