// A connection between two hosts. Bytes are sent in one of two ways:
//
// - post: into a ring of slots that the receiver keeps as long as the connection exists. The sender has one
//   credit for each free slot. Therefore the ring never overflows, and the sender does not have to ask first.
// - put: directly into memory that the receiver has offered. Large data is sent this way, without an
//   additional copy.
//
// No function blocks. Events (connected, sent, arrived, ended) notify the poller. One thread at a time may
// call these functions, except those marked "any thread".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/failure.hpp"
#include "base/mutex.hpp"
#include "transport/poller.hpp"
#include "transport/transport.hpp"

namespace dsc {

class TransportChannel {
 public:
  static constexpr size_t kSlotBytes = size_t{256} * 1024;
  static constexpr uint64_t kSlots = 8;

  // Starts to listen for the peer. Throws BACKEND if the transport cannot listen.
  TransportChannel(std::shared_ptr<Transport> transport, Poller& poller);
  ~TransportChannel();
  TransportChannel(const TransportChannel&) = delete;
  TransportChannel& operator=(const TransportChannel&) = delete;

  // Returns the address that the peer needs to connect.
  const std::string& address() const noexcept { return address_; }
  // Starts to connect and returns immediately. Throws BACKEND for an invalid address.
  void connect(const std::string& peer_address);

  bool open() const noexcept { return state_ == State::kOpen; }
  bool ended() const noexcept { return state_ == State::kEnded; }
  std::string why_ended() const;
  // Returns whether the peer's host has acknowledged nothing for some seconds. This does not include a peer
  // process that reads nothing, because the kernel of its host still answers. Any thread.
  bool is_cut_off() noexcept;

  // Sends the abort message to the peer. Only the first call has an effect. Any thread.
  void send_abort(const Failure& cause);
  // Returns the peer's abort message, or null if it has sent none.
  const Failure* abort_cause();

  // From now on the waiting thread moves the bytes of this connection. The poller reports events of the
  // connection with this index.
  void take_over_polling(int32_t index);
  // From now on the transport module's thread moves the bytes, until the next take_over_polling(). Any
  // thread.
  void hand_back_polling() noexcept;
  // Moves bytes after the poller has reported an event. Returns true if there is more to move immediately.
  bool move();

  // Requests the end of the connection, which follows soon on both sides. Any thread.
  void shut_down() noexcept;
  // Ends the connection. When this returns, nothing accesses memory that was posted, put or offered.
  void close();

  // may_post() returns whether there is a credit. post() uses one credit and sends at most kSlotBytes. The
  // memory must stay unchanged until all_sent(). After the connection has ended, post() has no effect.
  bool may_post();
  void post(const void* memory, size_t bytes);
  bool all_sent() const noexcept { return sent_ >= needed_; }
  // Returns whether the peer's kernel has acknowledged all data. Ending the connection then loses nothing.
  // Any thread.
  bool all_delivered() noexcept;

  // Returns the number of messages from the peer that have arrived and were not released.
  uint64_t waiting();
  // arrived() returns the oldest of these messages, or null if there is none. release() frees its slot.
  const std::byte* arrived();
  void release();

  // Allows the peer to put into this memory `puts` times. Only one offer may be open at a time, until
  // withdraw(). The poller is notified after the last put, or after each one.
  enum class Tell { kLast, kEach };
  void offer(void* memory, size_t bytes, uint64_t puts, Tell tell);
  uint64_t puts_arrived();  // number of puts since the latest offer
  void withdraw();

  // Returns whether the peer has an open offer. The last put into an offer closes it.
  bool offered();
  void put(const void* memory, size_t bytes, size_t offset, bool last);

 private:
  enum class State { kConnecting, kOpen, kEnded };
  enum Slot : int32_t { kRing = 1, kCredit = 2, kOffer = 3, kOffered = 4, kAbort = 5 };

  void on_event(int32_t event, int32_t detail) noexcept;
  bool needs_notification(int32_t event, int32_t detail) noexcept;
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
  Failure mine_, peers_;

  uint64_t posted_ = 0, credits_ = kSlots;  // messages from this host to the peer
  uint64_t arrived_ = 0, released_ = 0;     // messages from the peer to this host
  uint64_t offers_ = 0, puts_arrived_ = 0;
  // An abort message may be sent while another thread sends a message. The lock keeps the numbers of messages
  // in the order of sending.
  Mutex send_mutex_;
  // Number of messages sent so far. `needed_` is the number of the last message that contained data.
  uint64_t sending_ DSC_GUARDED_BY(send_mutex_) = 0;
  std::atomic<uint64_t> needed_{0};
  std::atomic<uint64_t> sent_{0};
  // Number of puts that must still arrive before the poller is notified.
  std::atomic<uint64_t> puts_before_notify_{0};
  std::atomic<bool> abort_was_sent_{false};
  std::atomic<State> state_{State::kConnecting};
  Mutex mutex_;
  int fd_ DSC_GUARDED_BY(mutex_) = -1;
  int64_t next_look_ns_ DSC_GUARDED_BY(mutex_) = 0;
  bool polled_ DSC_GUARDED_BY(mutex_) = false;
};

}  // namespace dsc
