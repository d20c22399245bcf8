// A connection between two hosts. Bytes travel in one of two ways:
//
// - post: into a ring of slots that the receiver owns for the life of the connection. The sender holds a
//   credit for each vacant slot, so that the ring never overflows and no request is needed first.
// - put: directly into memory that the receiver has offered. Large data travels this way, without a copy.
//
// No function blocks. Events (connected, sent, arrived, ended) notify the poller. Functions are called by one
// thread at a time unless they say "any thread".
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

  // Opens a listening end. Throws BACKEND if the transport cannot listen.
  TransportChannel(std::shared_ptr<Transport> transport, Poller& poller);
  ~TransportChannel();
  TransportChannel(const TransportChannel&) = delete;
  TransportChannel& operator=(const TransportChannel&) = delete;

  // Returns the address that the peer needs to connect.
  const std::string& address() const noexcept { return address_; }
  // Starts connecting and returns at once. Throws BACKEND for an invalid address.
  void connect(const std::string& peer_address);

  bool open() const noexcept { return state_ == State::kOpen; }
  bool ended() const noexcept { return state_ == State::kEnded; }
  std::string why_ended() const;
  // Returns whether the peer's host has acknowledged nothing for seconds. A process that does not read is a
  // different case: its kernel still answers. Any thread.
  bool is_cut_off() noexcept;

  // Sends the abort message to the peer. Any thread; only the first call has an effect.
  void send_abort(const Failure& cause);
  // Returns the peer's abort message, or null if it has sent none.
  const Failure* abort_cause();

  // From now on the polling thread moves the bytes of this connection. The poller reports events under this
  // index.
  void take_over_polling(int32_t index);
  // From now on the module's thread moves the bytes, until the next take_over_polling(). Any thread.
  void hand_back_polling() noexcept;
  // Moves bytes when the poller reports an event. True if there is more to move at once.
  bool move();

  // Makes the connection end soon, on both sides. Any thread.
  void shut_down() noexcept;
  // Ends the connection now. Afterwards nothing accesses memory that was posted, put or offered.
  void close();

  // may_post() tells whether there is a credit; post() uses one, for at most kSlotBytes. The memory is read
  // until all_sent(). Has no effect once the connection has ended.
  bool may_post();
  void post(const void* memory, size_t bytes);
  bool all_sent() const noexcept { return sent_ >= needed_; }
  // Returns whether the peer's kernel has acknowledged all data, so that ending the connection loses nothing.
  // Any thread.
  bool all_delivered() noexcept;

  // Returns the number of messages that the peer posted and release() has not freed.
  uint64_t waiting();
  // Returns the oldest of these messages, or null if there is none.
  const std::byte* arrived();
  void release();

  // Lets the peer put into this memory, `puts` times. Only one offer is open at a time, until withdraw(). The
  // poller is notified when the last put has arrived, or for each one.
  enum class Tell { kLast, kEach };
  void offer(void* memory, size_t bytes, uint64_t puts, Tell tell);
  uint64_t puts_arrived();  // counts since the latest offer
  void withdraw();

  // Returns whether the peer has an open offer; the last put into an offer uses it up.
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

  uint64_t posted_ = 0, credits_ = kSlots;  // from this side to the peer
  uint64_t arrived_ = 0, released_ = 0;     // from the peer to this side
  uint64_t offers_ = 0, puts_arrived_ = 0;
  // an abort message may be sent while another message is sent; the lock keeps the counter in send order
  Mutex send_mutex_;
  // number of messages; the last one with data has number `needed_`
  uint64_t sending_ DSC_GUARDED_BY(send_mutex_) = 0;
  std::atomic<uint64_t> needed_{0};
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> puts_before_notify_{0};  // puts that must arrive before the poller is notified
  std::atomic<bool> abort_was_sent_{false};
  std::atomic<State> state_{State::kConnecting};
  Mutex mutex_;
  int fd_ DSC_GUARDED_BY(mutex_) = -1;
  int64_t next_look_ns_ DSC_GUARDED_BY(mutex_) = 0;
  bool polled_ DSC_GUARDED_BY(mutex_) = false;
};

}  // namespace dsc
