// A TCP connection of Gloo that reports its events to a listener. Messages of a peer can never terminate the
// process.
//
// Messages are written into memory that was registered before. Gloo's own protocol, in which the receiver
// first requests data, is not used, because libdsc has its own flow control. libdsc also waits by itself,
// because a wait in Gloo cannot have a deadline for each call.
#pragma once

#include <array>  // gloo/transport/tcp/device.h needs it
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <gloo/transport/tcp/buffer.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>

#include "transport/table.h"

namespace dsc::gloo_module {

namespace tcp = ::gloo::transport::tcp;

class WatchedPair;

// Memory into which the peer writes.
class Region final : public tcp::Buffer {
 public:
  Region(WatchedPair& pair, int32_t slot, void* memory, size_t bytes);
  uint32_t take_arrived();
  WatchedPair& pair() const { return owner_; }
  int slot() const { return slot_; }
  size_t bytes() const { return size_; }

 private:
  WatchedPair& owner_;
};

// Memory that is being sent. Its slot is -1, which is never registered. Any other slot would be unregistered
// by the destructor of the buffer.
class Source final : public tcp::Buffer {
 public:
  explicit Source(tcp::Pair* pair) : Buffer(pair, -1, nullptr, 0) {}
  void point_at(const void* memory, size_t bytes) {
    ptr_ = const_cast<void*>(memory);
    size_ = bytes;
  }
};

class WatchedPair final : public tcp::Pair {
 public:
  WatchedPair(tcp::Context* context, tcp::Device* device, const dsc_transport_listener& listener);
  ~WatchedPair() override;

  // Returns the address to which the peer connects.
  std::vector<char> address_bytes() const;
  // Throws if the address is of another family, because Gloo reports no clear error for that.
  void connect_to(const std::vector<char>& bytes);
  void end();
  std::string reason();  // returns why the connection ended
  Region* add_region(int32_t slot, void* memory, size_t bytes);
  void remove_region(Region* region);
  // Never blocks. If the pair is locked, the thread that holds the lock sends the message afterwards.
  void post(int32_t slot, const void* memory, size_t bytes, size_t offset);

  // Selects who polls the socket: Gloo's thread, or the caller with move().
  void poll(bool by_device);
  // Returns true if the caller should call it again immediately.
  bool move();

  void handleEvents(int events) override;

 protected:
  void handleReadWrite(int events) override;
  bool read() override;
  bool write(tcp::Op& op) override;
  void changeState(state next) noexcept override;
  // Gloo's connect() would wait here. This version returns immediately, and the listener learns the outcome
  // later.
  void waitUntilConnected(std::unique_lock<std::mutex>&, bool) override {}

 private:
  struct Message {
    int32_t slot;
    const void* memory;
    size_t bytes;
    size_t offset;
  };

  void tell(dsc_transport_event event, int32_t detail = -1) const noexcept {
    listener_.event(listener_.context, event, detail);
  }
  void give_up(const char* why);
  bool read_preamble();
  void check_preamble() const;
  void empty_outbox();
  std::optional<Message> take_message();
  bool has_messages();
  bool begin_handling();
  std::unique_ptr<Region> take_region(Region* region);
  void send_now(const Message& message);
  void send_waiting();
  void watch();

  const dsc_transport_listener listener_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> handling_{false};
  std::mutex outbox_mutex_;
  std::deque<Message> outbox_;
  // The members below are guarded by the mutex of Gloo's pair.
  std::vector<std::unique_ptr<Source>> idle_;
  std::deque<std::unique_ptr<Source>> busy_;  // in the order in which they are sent, oldest first
  std::vector<std::unique_ptr<Region>> regions_;
  bool by_device_ = true;
  bool moving_ = false;  // set while the caller is inside move()
  int watched_ = 0;      // epoll events that Gloo's thread watches; 0 means only the end of the connection
};

}  // namespace dsc::gloo_module
