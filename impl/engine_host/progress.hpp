// Who moves queued operations that nobody waits for: a thread of the library, or the program by
// dsc_progress().
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "engine_host/op_queue.hpp"

namespace dsc {

// A queue with operations, and what keeps it alive.
struct BusyQueue {
  std::shared_ptr<HostComm> comm;
  OpQueue* queue;
};

// Which queues a driver looks after: those of one world, or of all; the thread only where it is wanted.
struct QueueScope {
  const World* world = nullptr;
  bool for_thread = false;

  bool holds(const BusyQueue& entry) const noexcept;
};

class ProgressEngine {
 public:
  // Made at the first call and kept until the process is gone.
  static ProgressEngine& get();

  // Operations were queued in an empty queue. Starts the thread where one is wanted. Any thread.
  void add(std::shared_ptr<HostComm> comm, OpQueue& queue);
  // A queue that was left to a waiting thread may need another driver. Any thread.
  void wake() noexcept;

  // Lets go of queues that have nothing left to do: what was destroyed is then given back at once. Any
  // thread.
  void release_idle() noexcept;

  // Changes with the answer of list().
  uint64_t changes() const noexcept { return changes_.load(std::memory_order_seq_cst); }
  // The queues in scope that have operations.
  std::vector<BusyQueue> list(const QueueScope& scope, uint64_t& changes);
  // Operations that have left their queues and are not marked as done yet.
  std::atomic<int> completing{0};

  // Operations that have completed so far.
  std::atomic<uint64_t> completed{0};

 private:
  void start_thread_once();
  BusyQueue take_idle() noexcept;
  void run();
  void await_news(uint64_t seen);

  Mutex mutex_;
  Condition news_;
  std::vector<BusyQueue> queues_ DSC_GUARDED_BY(mutex_);
  bool has_thread_ DSC_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> changes_{1};
};

// The queues that one driver moves, as they were at the last change.
class DrivenQueues {
 public:
  explicit DrivenQueues(const QueueScope& scope) noexcept : scope_(scope) {}

  // Every queue that no other thread takes care of goes one step further. True when one did.
  bool drive(const OpQueue* except = nullptr) noexcept;
  void look_at_clock() noexcept;
  bool any_busy() noexcept;
  // Nobody takes care of one of them.
  bool any_unattended();
  void forget() noexcept;
  uint64_t seen() const noexcept { return seen_; }
  // There was none for the queues that came since.
  bool lacks_memory() const noexcept { return lacks_memory_; }

 private:
  void refresh() noexcept;

  const QueueScope scope_;
  std::vector<BusyQueue> queues_;
  uint64_t seen_ = 0;
  bool lacks_memory_ = false;
};

// What a thread that waits in one queue, or for something else, drives besides: in a world without a progress
// thread all other queues, or two ranks that wait in different places would wait for each other.
class OtherQueues {
 public:
  // `world` is null when the thread drives them.
  OtherQueues(const World* world, const OpQueue& own) noexcept
      : enabled_(world), own_(&own), queues_({world}) {}
  explicit OtherQueues(const World* world) noexcept : enabled_(world), queues_({world}) {}
  ~OtherQueues() {
    if (enabled_) ProgressEngine::get().wake();  // a thread that found one of them driven may sleep over it
  }
  OtherQueues(const OtherQueues&) = delete;
  OtherQueues& operator=(const OtherQueues&) = delete;

  bool drive() noexcept { return enabled_ && queues_.drive(own_); }
  void look_at_clock() noexcept { queues_.look_at_clock(); }

 private:
  const bool enabled_;
  const OpQueue* const own_ = nullptr;
  DrivenQueues queues_;
};

// Drives on the calling thread until an operation completes, nothing is left to do, or the deadline has
// passed. True when nothing is left.
bool make_progress(const QueueScope& scope, int spins, Deadline deadline);

}  // namespace dsc
