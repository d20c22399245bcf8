// The endpoint from which other processes fetch descriptors of this process: those of the memory of its
// ranks, and pidfds. It is an abstract socket with a random name. It exists as long as the process needs it.
// Descriptors are sent with SCM_RIGHTS.
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

// Identifies one descriptor. It contains the nonce of the world, so a process that does not know the nonce
// cannot fetch anything.
struct ItemKey {
  Nonce nonce{};
  uint32_t rank = 0;
  uint32_t kind = 0;
  uint64_t id = 0;

  auto operator<=>(const ItemKey&) const = default;
};

// Any thread may call any of these functions. None of them blocks.
class Endpoint {
 public:
  Endpoint();

  const std::string& name() const { return name_; }

  // Returns a descriptor that becomes readable when serve() has work, so that it can be added to an epoll
  // set.
  int poll_fd() const { return epoll_.get(); }

  // Accepts connections, reads requests, and answers requests for published items. Other requests wait until
  // publish().
  void serve();

  // Keeps a duplicate of fd until withdraw(), and answers waiting requests for it. A second publish()
  // replaces the first one.
  void publish(const ItemKey& key, int fd);

  void withdraw(const ItemKey& key);

  // Called when a rank of this process has left its world. Withdraws its items. Current and later requests
  // for them get the answer that the rank has left.
  void leave_world(const Nonce& nonce, uint32_t rank) noexcept;

  // Called in a forked child. Releases the name without using the lock, which another thread of the parent
  // may have held.
  void close_after_fork() noexcept {
    listener_.reset();
    epoll_.reset();
  }

 private:
  // A connection that has sent nothing yet, or that waits for an item.
  struct Client {
    UniqueFd fd;
    std::optional<ItemKey> wanted;  // empty until the request has arrived
  };
  using Clients = std::list<Client>;

  // A rank of this process that has left its world.
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
  UniqueFd spare_ DSC_GUARDED_BY(mutex_);  // closed for a moment to accept a client if no other is free
  std::map<ItemKey, UniqueFd> items_ DSC_GUARDED_BY(mutex_);
  Clients clients_ DSC_GUARDED_BY(mutex_);                 // in order of arrival
  std::array<LeftRank, 256> left_ DSC_GUARDED_BY(mutex_);  // the ranks that left most recently
  size_t left_count_ DSC_GUARDED_BY(mutex_) = 0;           // number of all ranks that have left so far
};

// Blocks until the process that owns `endpoint` provides the descriptor, which may be published later.
// `owner` is the name of that process in errors. `check` runs at least every 50 ms and may throw to end the
// wait. Throws PEER_DEAD if that process has ended, PEER_LEFT if its rank has left the world, TIMEOUT,
// PROTOCOL, and ADDR_IN_USE if another user holds the name.
UniqueFd fetch(const std::string& endpoint, const std::string& owner, const ItemKey& key, Deadline deadline,
               const std::function<void()>& check);

}  // namespace dsc
