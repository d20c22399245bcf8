// The state that the ranks of one world share in the conformance engine: one lock, and a clock. The clock
// ends operations whose deadline has passed even if no rank waits for them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/clock.hpp"

namespace conformance {

class SharedGroup;

// The operations of one rank, or of all ranks, in all groups of its world. Guarded by the lock of the world.
struct RankLoad {
  size_t running = 0;
  uint64_t ended = 0;
};

class SharedWorld : public std::enable_shared_from_this<SharedWorld> {
 public:
  // Without a clock only calls of the program end operations.
  static std::shared_ptr<SharedWorld> make(bool has_clock);
  explicit SharedWorld(bool has_clock);
  ~SharedWorld();
  SharedWorld(const SharedWorld&) = delete;
  SharedWorld& operator=(const SharedWorld&) = delete;

  // Returns the group with this id. The first rank creates it. It is kept here until all ranks have arrived.
  std::shared_ptr<SharedGroup> join(uint64_t id, int size, int comers);

  // Returns all existing worlds.
  static std::vector<std::shared_ptr<SharedWorld>> all();

  // --- These functions need the lock.
  void add(SharedGroup& group) { groups_.insert(&group); }
  void remove(SharedGroup& group) noexcept { groups_.erase(&group); }
  // Ends operations that are too late. Returns when to look again.
  dsc::Deadline expire();
  // Makes the clock look at this time at the latest.
  void look_at(dsc::Deadline deadline);
  // Waits until something changes, or until the deadline.
  void wait(std::unique_lock<std::mutex>& lock, dsc::Deadline deadline);
  void notify() noexcept { changed_.notify_all(); }
  void begin(RankLoad& load) noexcept;
  void end(RankLoad& load) noexcept;
  // Waits until an operation of this load ends, no operation is left, or the deadline has passed. Returns
  // true if none is left.
  bool progress(const RankLoad& load, dsc::Deadline deadline, std::unique_lock<std::mutex>& lock);
  const RankLoad& load_of_all() const noexcept { return load_; }

  std::mutex mutex;

 private:
  struct Forming {
    std::shared_ptr<SharedGroup> group;
    int missing;
  };
  void run_clock();

  std::condition_variable changed_;
  std::condition_variable earlier_;  // wakes the clock when it must look earlier
  std::set<SharedGroup*> groups_;
  RankLoad load_;
  std::map<uint64_t, Forming> forming_;
  dsc::Deadline next_look_ = dsc::Deadline::never();
  bool over_ = false;
  std::thread clock_;
};

}  // namespace conformance
