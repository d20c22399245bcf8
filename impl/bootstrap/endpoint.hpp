// The endpoint at which other processes fetch descriptors of this process: its ranks' memory and their
// pidfds. It is an abstract socket with a random name that exists as long as the process needs it;
// descriptors are passed by SCM_RIGHTS.
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

// Names one descriptor. The nonce is that of the world: a process that does not know it gets nothing.
struct ItemKey {
  Nonce nonce{};
  uint32_t rank = 0;
  uint32_t kind = 0;
  uint64_t id = 0;

  auto operator<=>(const ItemKey&) const = default;
};

// Any thread may call any function; none blocks.
class Endpoint {
 public:
  Endpoint();

  const std::string& name() const { return name_; }

  // The descriptor becomes readable when serve() has work, so that it can be added to another epoll set.
  int poll_fd() const { return epoll_.get(); }

  // Accepts connections, reads requests and answers those whose item is published; the others wait until
  // publish().
  void serve();

  // Keeps a duplicate of fd until it is withdrawn, and answers waiting requests for it. A second publish()
  // replaces the first.
  void publish(const ItemKey& key, int fd);

  void withdraw(const ItemKey& key);

  // A rank of this process has left its world: its items are withdrawn, and present and future requests for
  // them get the reply that it left.
  void leave_world(const Nonce& nonce, uint32_t rank) noexcept;

  // Called in a forked child: releases the name without touching the lock.
  void close_after_fork() noexcept {
    listener_.reset();
    epoll_.reset();
  }

 private:
  // A connection that has sent nothing yet, or waits for an item.
  struct Client {
    UniqueFd fd;
    std::optional<ItemKey> wanted;  // empty until its request has arrived
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
  UniqueFd spare_ DSC_GUARDED_BY(mutex_);  // closed for a moment when the process is out of descriptors
  std::map<ItemKey, UniqueFd> items_ DSC_GUARDED_BY(mutex_);
  Clients clients_ DSC_GUARDED_BY(mutex_);                 // in order of arrival
  std::array<LeftRank, 256> left_ DSC_GUARDED_BY(mutex_);  // the latest ranks that left
  size_t left_count_ DSC_GUARDED_BY(mutex_) = 0;           // number of ranks that ever left
};

// Blocks until the process that owns `endpoint` provides the descriptor, which may be published later.
// `owner` names that process in errors. `check` runs at least every 50 ms and may throw to give up. Throws
// PEER_DEAD if that process is gone, PEER_LEFT if its rank left the world, TIMEOUT, ADDR_IN_USE (another user
// holds the name), PROTOCOL.
UniqueFd fetch(const std::string& endpoint, const std::string& owner, const ItemKey& key, Deadline deadline,
               const std::function<void()>& check);

}  // namespace dsc
