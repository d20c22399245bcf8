// The one place of a process where others fetch its descriptors: memory of its ranks, their pidfds. An
// abstract socket with a random name lives as long as the process needs it; descriptors travel by SCM_RIGHTS.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"

namespace dsc {

// Names one descriptor. The nonce is its world's: who does not know it gets nothing.
struct ItemKey {
  Nonce nonce{};
  uint32_t rank = 0;
  uint32_t kind = 0;
  uint64_t id = 0;

  auto operator<=>(const ItemKey&) const = default;
};

// Any thread may call anything; nothing here blocks.
class Endpoint {
 public:
  Endpoint();

  const std::string& name() const { return name_; }

  // Readable when serve() has work. Others may add it to their own epoll set.
  int poll_fd() const { return epoll_.get(); }

  // Accepts, reads requests and answers those whose item is there; the others stay until publish().
  void serve();

  // Keeps a duplicate of fd until it is withdrawn, and answers who waits for it. A second publish replaces
  // the first.
  void publish(const ItemKey& key, int fd);

  void withdraw(const ItemKey& key);

  // A rank of this process is done with its world: its items go, and who waits for one of them, or asks
  // later, is told that it left.
  void leave_world(const Nonce& nonce, uint32_t rank) noexcept;

  // In a child made by fork(): gives the name up without touching the lock.
  void close_after_fork() noexcept {
    listener_.reset();
    epoll_.reset();
  }

 private:
  struct Client {
    UniqueFd fd;
    std::optional<ItemKey> wanted;  // empty until its request came
  };
  using Clients = std::list<Client>;

  struct LeftRank {
    Nonce nonce{};
    uint32_t rank = 0;

    bool owned(const ItemKey& key) const noexcept { return key.rank == rank && key.nonce == nonce; }
  };

  bool has_left(const ItemKey& key) const noexcept DSC_REQUIRES(mutex_);
  void accept_waiting() DSC_REQUIRES(mutex_);
  void make_room() DSC_REQUIRES(mutex_);
  void shed_one() DSC_REQUIRES(mutex_);
  void read_request(Clients::iterator client) DSC_REQUIRES(mutex_);
  void drop(Clients::iterator client) DSC_REQUIRES(mutex_);

  const std::string name_;
  UniqueFd listener_;
  UniqueFd epoll_;
  Mutex mutex_;
  UniqueFd spare_ DSC_GUARDED_BY(mutex_);  // given up for a moment when the process is out of descriptors
  std::map<ItemKey, UniqueFd> items_ DSC_GUARDED_BY(mutex_);
  Clients clients_ DSC_GUARDED_BY(mutex_);                 // in order of arrival
  std::array<LeftRank, 256> left_ DSC_GUARDED_BY(mutex_);  // the latest
  size_t left_count_ DSC_GUARDED_BY(mutex_) = 0;           // of all time
};

// Blocks until the process that owns `endpoint`, in errors called `owner`, gives the descriptor, which need
// not be published yet. `check` runs at least every 50 ms and may throw to give up. Throws PEER_DEAD if that
// process is gone, PEER_LEFT if it left the world, TIMEOUT, ADDR_IN_USE (another user holds the name),
// PROTOCOL.
UniqueFd fetch(const std::string& endpoint, const std::string& owner, const ItemKey& key, Deadline deadline,
               const std::function<void()>& check);

}  // namespace dsc
