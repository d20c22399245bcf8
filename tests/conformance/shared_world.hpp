// What the ranks of one world share in the conformance engine: one lock, and a clock that ends operations
// whose deadline has passed although no rank waits for them.
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

// Operations of one rank, or of all, in all groups of its world. Guarded by the lock of the world.
struct RankLoad {
  size_t running = 0;
  uint64_t ended = 0;
};

class SharedWorld : public std::enable_shared_from_this<SharedWorld> {
 public:
  // Without a clock, only calls of the program end operations.
  static std::shared_ptr<SharedWorld> make(bool has_clock);
  explicit SharedWorld(bool has_clock);
  ~SharedWorld();
  SharedWorld(const SharedWorld&) = delete;
  SharedWorld& operator=(const SharedWorld&) = delete;

  // Returns the group with this id. The first of those that come makes it; it is kept here until all have
  // come.
  std::shared_ptr<SharedGroup> join(uint64_t id, int size, int comers);

  // Returns the worlds that exist.
  static std::vector<std::shared_ptr<SharedWorld>> all();

  // --- With the lock held.
  void add(SharedGroup& group) { groups_.insert(&group); }
  void remove(SharedGroup& group) noexcept { groups_.erase(&group); }
  // Ends what is too late. Returns when to look again.
  dsc::Deadline expire();
  // The clock looks no later than at this time.
  void look_at(dsc::Deadline deadline);
  // Waits until something changes, at most until the deadline.
  void wait(std::unique_lock<std::mutex>& lock, dsc::Deadline deadline);
  void notify() noexcept { changed_.notify_all(); }
  void begin(RankLoad& load) noexcept;
  void end(RankLoad& load) noexcept;
  // Waits until an operation of this load ends, none is left, or the deadline has passed. Returns true if
  // none is left.
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
  std::condition_variable earlier_;  // the clock has to look earlier
  std::set<SharedGroup*> groups_;
  RankLoad load_;
  std::map<uint64_t, Forming> forming_;
  dsc::Deadline next_look_ = dsc::Deadline::never();
  bool over_ = false;
  std::thread clock_;
};

}  // namespace conformance
