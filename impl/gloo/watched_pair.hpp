// A TCP connection of Gloo's that tells what happens to it, and that nothing a peer sends can turn into the
// end of the process.
//
// Messages go into memory that was registered before, without Gloo's question whether it may send: libdsc has
// its own. Its waits are libdsc's too, as Gloo's cannot be given a deadline each.
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

// Memory that the peer writes into.
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

// Memory that is being sent. Its slot is nobody's: a buffer's end unregisters what has the same number.
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

  // For the peer.
  std::vector<char> address_bytes() const;
  // Throws for an address of another family: Gloo would not say what is wrong.
  void connect_to(const std::vector<char>& bytes);
  void end();
  std::string reason();  // why it ended
  Region* add_region(int32_t slot, void* memory, size_t bytes);
  void remove_region(Region* region);
  // Waits for nobody: when the pair is locked, who has the lock sends it afterwards.
  void post(int32_t slot, const void* memory, size_t bytes, size_t offset);

  // By Gloo's thread, or by who calls move().
  void poll(bool by_device);
  // True when it should be called again at once.
  bool move();

  void handleEvents(int events) override;

 protected:
  void handleReadWrite(int events) override;
  bool read() override;
  bool write(tcp::Op& op) override;
  void changeState(state next) noexcept override;
  // connect() does not wait: the listener is told.
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
  // All guarded by Gloo's mutex of the pair.
  std::vector<std::unique_ptr<Source>> idle_;
  std::deque<std::unique_ptr<Source>> busy_;  // oldest first, as they are sent
  std::vector<std::unique_ptr<Region>> regions_;
  bool by_device_ = true;
  bool moving_ = false;  // the caller reads
  int watched_ = 0;      // events that Gloo's thread is told of; 0: only of the end
};

}  // namespace dsc::gloo_module
