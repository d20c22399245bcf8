// Drives queued operations that no thread waits for, on a thread of the library or, in dsc_comm_progress(),
// on a thread of the program.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "engine_host/op_queue.hpp"

namespace dsc {

// A queue with operations, and the engine that keeps it alive.
struct BusyQueue {
  std::shared_ptr<HostEngine> engine;
  OpQueue* queue;
};

// Selects the queues that a driver handles: those of the ranks of one world on this host, or of all worlds if
// `host` is null. With `for_thread`, which the progress thread sets, worlds without a progress thread are
// excluded.
struct QueueScope {
  const HostGroup* host = nullptr;
  bool for_thread = false;

  bool holds(const BusyQueue& entry) const noexcept;
};

class ProgressEngine {
 public:
  // The engine is made by the first call and never destroyed.
  static ProgressEngine& get();

  // Called when a queue is no longer empty. Starts the progress thread if the world wants one. Any thread may
  // call this.
  void add(std::shared_ptr<HostEngine> engine, OpQueue& queue);
  // Called when a queue may need another driver after a waiting thread has driven it. Any thread may call
  // this.
  void wake() noexcept;

  // Releases idle queues, so that destroyed communicators are freed immediately. Any thread may call this.
  void release_idle() noexcept;

  // Returns a number that changes when the result of list() changes.
  uint64_t changes() const noexcept { return changes_.load(std::memory_order_seq_cst); }
  // Returns the queues in scope that have operations.
  std::vector<BusyQueue> list(const QueueScope& scope, uint64_t& changes);
  // Number of operations that have left their queues and are not yet marked as done.
  std::atomic<int> completing{0};

  // Number of operations, in all worlds, that are run by threads of another engine.
  std::atomic<int> outside{0};

  // Number of operations that have completed so far.
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

// The queues that one driver drives. The list is updated when queues are added or become idle.
class DrivenQueues {
 public:
  explicit DrivenQueues(const QueueScope& scope) noexcept : scope_(scope) {}

  // Runs one step of every queue that no other thread drives. True if one made progress.
  bool drive(const OpQueue* except = nullptr) noexcept;
  void look_at_clock() noexcept;
  bool any_busy() noexcept;
  // True if a queue has operations and no thread drives it.
  bool any_unattended();
  void forget() noexcept;
  uint64_t seen() const noexcept { return seen_; }
  // True if memory was too short to list the queues that were added last.
  bool lacks_memory() const noexcept { return lacks_memory_; }

 private:
  void refresh() noexcept;

  const QueueScope scope_;
  std::vector<BusyQueue> queues_;
  uint64_t seen_ = 0;
  bool lacks_memory_ = false;
};

// The queues that a waiting thread drives in addition to its own queue. In a world without a progress thread,
// these are all other queues. Otherwise, two ranks that wait in different queues would wait for each other
// forever.
class OtherQueues {
 public:
  // `host` is null if the progress thread drives the other queues.
  OtherQueues(const HostGroup* host, const OpQueue& own) noexcept
      : enabled_(host), own_(&own), queues_({host}) {}
  explicit OtherQueues(const HostGroup* host) noexcept : enabled_(host), queues_({host}) {}
  ~OtherQueues() {
    if (enabled_) ProgressEngine::get().wake();  // a thread that found a queue driven here may be asleep
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

// Called by an engine that runs operations on its own threads, so that make_progress() also waits for these
// operations. Any thread may call this.
void begin_outside(HostGroup& host) noexcept;
void end_outside(HostGroup& host) noexcept;  // called when the operation's work already shows completion

// Drives queues on the calling thread until an operation completes, all operations have ended, or the
// deadline has passed. Returns true if all operations have ended.
bool make_progress(const QueueScope& scope, int spins, Deadline deadline);

}  // namespace dsc
