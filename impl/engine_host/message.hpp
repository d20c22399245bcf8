// One message between two ranks, by rendezvous: it completes at both ends when the receiver has all data.
#pragma once

#include <optional>

#include "engine_host/operation.hpp"
#include "engine_host/zero_copy.hpp"

namespace dsc {

// The common part of both ends of a message.
class Message : public Operation {
 public:
  Message(Group& group, const Call& call, uint64_t number) noexcept;

 protected:
  enum class Phase { kPosting, kMeeting, kMoving, kFinishing, kLeaving };

  virtual bool peer_is_here() const noexcept = 0;
  bool misses(int member) const noexcept override { return member == peer_ && !peer_is_here(); }
  bool suspects(int member) const noexcept override { return member == peer_; }

  void post(MessagePost& mine) noexcept;
  // Returns true if the other end posted an equal call; otherwise it revokes the group.
  bool verify(const MessagePost& mine, const MessagePost& theirs);
  bool direct(const MessagePost& sender, const MessagePost& receiver) const noexcept;
  size_t chunk_length(uint64_t chunk) const noexcept;
  Progress pending() noexcept { return group_.revoked() ? Progress::kFailed : Progress::kPending; }

  const int peer_;
  const size_t bytes_;
  uint64_t chunks_ = 0;
  uint64_t base_ = 0;   // number of chunks of all messages before this one
  uint64_t chunk_ = 0;  // the next one; of another size if the sender's buffer is read directly
  Phase phase_ = Phase::kPosting;
};

// The sender's end of a message.
class SendMessage final : public Message {
 public:
  SendMessage(Group& group, const Call& call, uint64_t number) noexcept;
  Progress step() override;
  Progress depart() override { return leave(); }

 private:
  bool peer_is_here() const noexcept override;
  void produce();
  Progress leave() noexcept;

  SendChannel& mine_;
  RecvChannel& theirs_;
  std::optional<Departure> departure_;
};

// The receiver's end of a message.
class RecvMessage final : public Message {
 public:
  RecvMessage(Group& group, const Call& call, uint64_t number) noexcept;
  Progress step() override;
  Progress depart() override { return Progress::kFailed; }

 private:
  bool peer_is_here() const noexcept override;
  Progress consume();
  Progress take_piece();
  void finish() noexcept;

  RecvChannel& mine_;
  SendChannel& theirs_;
};

}  // namespace dsc
