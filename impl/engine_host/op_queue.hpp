// A queue of operations that run one after another: the collectives of a communicator, or the messages of
// one direction between two ranks. Queues do not wait for each other.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <variant>

#include "base/mutex.hpp"
#include "comm/operation_work.hpp"
#include "engine_host/collective.hpp"
#include "engine_host/message.hpp"
#include "engine_host/small.hpp"

namespace dsc {

class HostEngine;
class OtherQueues;
class OpQueue;

// Storage for one operation of any kind, inside the object that owns the operation.
class OperationBox {
 public:
  Operation& emplace(Group& group, const Call& call, uint64_t sequence);
  void clear() { held_.emplace<std::monostate>(); }

 private:
  std::variant<std::monostate, Collective, SendMessage, RecvMessage> held_;
};

// An operation that OpQueue::start() has queued.
class HostWork final : public OperationWork {
 public:
  HostWork(std::shared_ptr<HostEngine> engine, OpQueue& queue, const Call& call);

  bool test() override;
  void complete(const std::optional<Failure>& failure) noexcept;

 private:
  friend class OpQueue;

  bool advance(OtherQueues& others);
  void await_end(Deadline deadline) override;

  const std::shared_ptr<HostEngine> engine_;
  OpQueue& queue_;
  OperationBox box_;                // until completion, only the queue's driver uses it
  Operation* operation_ = nullptr;  // points into box_
};

// Held by the only thread that drives a queue's operations. No thread waits for this lock: a thread that
// finds it taken leaves the work to the thread that holds it.
class DSC_TSA(capability("mutex")) QueueLock {
 public:
  bool try_lock() DSC_TSA(try_acquire_capability(true)) { return take(State::kDriven); }
  // Takes the lock for an operation that was never queued.
  bool try_lock_alone() DSC_TSA(try_acquire_capability(true)) { return take(State::kAlone); }
  // Sequentially consistent, because the holder then checks whether an operation was queued meanwhile.
  void unlock() DSC_TSA(release_capability()) { state_.store(State::kFree, std::memory_order_seq_cst); }

  bool is_alone() const noexcept { return state_.load(std::memory_order_seq_cst) == State::kAlone; }

 private:
  enum class State { kFree, kDriven, kAlone };

  bool take(State wanted) noexcept {
    State seen = State::kFree;
    return state_.compare_exchange_strong(seen, wanted, std::memory_order_seq_cst);
  }

  std::atomic<State> state_{State::kFree};
};

// Releases a QueueLock that its creator has taken.
class DSC_TSA(scoped_lockable) QueueGuard {
 public:
  explicit QueueGuard(QueueLock& seat) DSC_TSA(requires_capability(seat)) : seat_(seat) {}
  ~QueueGuard() DSC_TSA(release_capability()) { seat_.unlock(); }
  QueueGuard(const QueueGuard&) = delete;
  QueueGuard& operator=(const QueueGuard&) = delete;

 private:
  QueueLock& seat_;
};

// Any thread may drive a queue. Calls that add operations to the same queue must come one after another.
class OpQueue {
 public:
  explicit OpQueue(HostEngine& engine) : engine_(engine) {}

  // Runs an operation on the calling thread, after the queued operations; throws its failure.
  void run(const Call& call);
  // Queues an operation; the progress thread, a thread that waits, or dsc_comm_progress() drives it.
  std::shared_ptr<HostWork> start(const Call& call);

  // Runs one step of the first operation; true if it made progress. Does nothing while another thread
  // drives.
  bool drive();
  // Calls look_at_clock() of the first operation.
  void look_at_clock();
  // Waits until the operations that are queued now have ended; false if the deadline passed first.
  bool drain(Deadline deadline);

  // Returns the sequence number of the operation that was called last.
  uint64_t latest_sequence() const noexcept { return next_sequence_.load(std::memory_order_relaxed) - 1; }
  // Restarts numbering at 1, because the user did not call the operations before.
  void restart_sequence() noexcept { next_sequence_.store(1, std::memory_order_relaxed); }

  bool busy() const noexcept { return queued_.load(std::memory_order_acquire) > 0; }
  // True while a thread runs an operation of this queue that was never queued.
  bool runs_alone() const noexcept { return driver_.is_alone(); }

  // Number of threads that wait here. They drive the queue meanwhile, so the progress thread leaves it to
  // them.
  std::atomic<int> waiters{0};

 private:
  uint64_t take_sequence() noexcept;
  std::optional<Failure> run_alone(const Call& call);
  template <typename Kind>
  std::optional<Failure> run_as(const Call& call);
  template <typename Kind>
  Progress step_until_over(Kind& operation, Progress progress);
  void begin_first(const std::shared_ptr<HostWork>& work);
  bool drive_first() DSC_REQUIRES(driver_);
  std::shared_ptr<HostWork> front();
  void pop();

  HostEngine& engine_;
  QueueLock driver_;  // taken before the mutex
  Mutex queue_mutex_;
  std::deque<std::shared_ptr<HostWork>> queue_ DSC_GUARDED_BY(queue_mutex_);
  std::atomic<size_t> queued_{0};
  // Sequence numbers follow the order of the calls, which come one after another.
  std::atomic<uint64_t> next_sequence_{1};
};

}  // namespace dsc
