// One connection between two hosts. Bytes go in one of two ways:
//
// - posted: into a ring of slots that the receiver keeps for the connection's life. The sender has a credit
// for
//   each vacant slot, so that nothing overflows; nobody has to ask first.
// - put: straight into memory that the receiver has offered. Large data travels so, without a copy.
//
// Nothing here blocks. What happens by itself (connecting, sending, arriving, the end) beats the completions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.hpp"
#include "transport/abort_message.hpp"
#include "transport/poller.hpp"
#include "transport/transport.hpp"

namespace dsc {

class TransportChannel {
 public:
  static constexpr size_t kSlotBytes = size_t{256} * 1024;
  static constexpr uint64_t kSlots = 8;

  // Listens.
  TransportChannel(std::shared_ptr<Transport> transport, Poller& poller);
  ~TransportChannel();
  TransportChannel(const TransportChannel&) = delete;
  TransportChannel& operator=(const TransportChannel&) = delete;

  // What the peer needs to connect.
  const std::string& address() const noexcept { return address_; }
  // Returns at once. Throws BACKEND for an address that cannot be one.
  void connect(const std::string& peer_address);

  bool open() const noexcept { return state_ == State::kOpen; }
  bool ended() const noexcept { return state_ == State::kEnded; }
  std::string why_ended() const;
  // The peer's host has answered nothing for seconds. That its process reads nothing is something else.
  bool is_cut_off() noexcept;

  // Any thread; the first one counts.
  void say_farewell(const AbortMessage& abort_message);
  // The peer's; null: it said none.
  const AbortMessage* abort_message();

  // From now on the thread that polls moves its bytes: it is told of what happens here by this index.
  void move_here(int32_t index);
  // Or Gloo's thread does, until the next move_here(). Any thread.
  void move_elsewhere() noexcept;
  // When the poller says so. True: there is more to move at once.
  bool move();

  // Any thread: the connection ends soon, at both sides.
  void shut_down() noexcept;
  // Ends it now. Afterwards nobody touches memory that was posted, put or offered.
  void close();

  // At most kSlotBytes. The memory is read until all_sent(). Without effect when the connection has ended.
  bool may_post();
  void post(const void* memory, size_t bytes);
  bool all_sent() const noexcept { return sent_ >= needed_; }
  // The peer's kernel has all of it: ending the connection takes nothing away any more.
  bool all_delivered() noexcept;

  // Messages that the peer posted and release() has not let go.
  uint64_t waiting();
  // The oldest of them; null: there is none.
  const std::byte* arrived();
  void release();

  // Lets the peer put into memory, so many times; for one offer at a time, until withdraw(). The completions
  // beats when all is there, or for each.
  enum class Tell { kLast, kEach };
  void offer(void* memory, size_t bytes, uint64_t puts, Tell tell);
  uint64_t puts_arrived();  // since the latest offer
  void withdraw();

  // Whether the peer has offered; each offer is used up by the last put into it.
  bool offered();
  void put(const void* memory, size_t bytes, size_t offset, bool last);

 private:
  enum class State { kConnecting, kOpen, kEnded };
  enum Slot : int32_t { kRing = 1, kCredit = 2, kOffer = 3, kOffered = 4, kFarewell = 5 };

  void happened(int32_t event, int32_t detail) noexcept;
  bool matters(int32_t event, int32_t detail) noexcept;
  dsc_transport_region* open_region(Slot slot, void* memory, size_t bytes);
  void send(Slot slot, const void* memory, size_t bytes, size_t offset);

  const std::shared_ptr<Transport> transport_;
  Poller& poller_;
  std::unique_ptr<std::byte[]> ring_;
  dsc_transport_pair* pair_ = nullptr;
  std::string address_;
  dsc_transport_region* in_ring_ = nullptr;
  dsc_transport_region* in_credits_ = nullptr;
  dsc_transport_region* in_offers_ = nullptr;
  dsc_transport_region* in_offered_ = nullptr;
  dsc_transport_region* in_abort_ = nullptr;
  AbortMessage mine_, peers_;

  uint64_t posted_ = 0, credits_ = kSlots;  // mine to the peer
  uint64_t arrived_ = 0, released_ = 0;     // the peer's to me
  uint64_t offers_ = 0, puts_arrived_ = 0;
  Mutex send_mutex_;  // a farewell may come while another message goes: they are counted in the order they go
  uint64_t sending_ DSC_GUARDED_BY(send_mutex_) = 0;  // messages; the last one with data is number `needed_`
  std::atomic<uint64_t> needed_{0};
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> untold_{0};  // puts that have yet to come before one is told
  std::atomic<bool> said_farewell_{false};
  std::atomic<State> state_{State::kConnecting};
  Mutex mutex_;
  int fd_ DSC_GUARDED_BY(mutex_) = -1;
  int64_t next_look_ns_ DSC_GUARDED_BY(mutex_) = 0;
  bool polled_ DSC_GUARDED_BY(mutex_) = false;
};

}  // namespace dsc
