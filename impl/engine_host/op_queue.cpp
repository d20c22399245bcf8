#include "engine_host/op_queue.hpp"

#include "base/error.hpp"
#include "base/guard.hpp"
#include "engine_host/host_engine.hpp"
#include "engine_host/progress.hpp"

namespace dsc {
namespace {

constexpr size_t kInlineBytes = size_t{64} << 10;

// Turns an exception of an operation into the group's failure. Memory may be short, or a peer may be
// corrupted or hostile.
template <typename Body>
Progress contain(Operation& operation, Body&& body) noexcept {
  Progress progress = Progress::kFailed;
  const bool ran =
      capture([&] { progress = body(); },
              [&](dsc_result_t code, const char* text) { fail_operation(operation, code, text); });
  return ran ? progress : operation.depart();
}

template <typename Kind>
Progress step(Kind& operation) noexcept {
  return contain(operation, [&] { return operation.step(); });
}

// While it exists, counts an operation that has left its queue but is not yet marked as done.
class Completing {
 public:
  Completing() noexcept { ProgressEngine::get().completing.fetch_add(1, std::memory_order_seq_cst); }
  ~Completing() { ProgressEngine::get().completing.fetch_sub(1, std::memory_order_seq_cst); }
  Completing(const Completing&) = delete;
  Completing& operator=(const Completing&) = delete;
};

// Wakes the progress thread after this thread has driven a queue. The progress thread may have gone to sleep
// because it found the queue driven by another thread.
class WakeIfBusy {
 public:
  explicit WakeIfBusy(const OpQueue& queue) noexcept : queue_(queue) {}
  ~WakeIfBusy() {
    if (queue_.busy()) ProgressEngine::get().wake();
  }
  WakeIfBusy(const WakeIfBusy&) = delete;
  WakeIfBusy& operator=(const WakeIfBusy&) = delete;

 private:
  const OpQueue& queue_;
};

}  // namespace

Operation& OperationBox::emplace(Group& group, const Call& call, uint64_t sequence) {
  if (call.kind == OpKind::kSend) return held_.emplace<SendMessage>(group, call, sequence);
  if (call.kind == OpKind::kRecv) return held_.emplace<RecvMessage>(group, call, sequence);
  return held_.emplace<Collective>(group, call, sequence);
}

HostWork::HostWork(std::shared_ptr<HostEngine> engine, OpQueue& queue, const Call& call)
    : OperationWork(call, engine->id()), engine_(std::move(engine)), queue_(queue) {}

// Drives the work's own queue first, then the others: without a progress thread, no other thread may drive
// them.
bool HostWork::advance(OtherQueues& others) {
  const bool moved = queue_.drive();
  return others.drive() || moved;
}

void HostWork::await_end(Deadline deadline) {
  OtherQueues others(engine_->self_driven(), queue_);
  queue_.waiters.fetch_add(1);
  Backoff backoff(engine_->notifier(), engine_->spins());
  while (!done()) {
    if (advance(others)) backoff.reset();
    const int64_t left_ns = deadline.remaining_ns();
    if (done() || left_ns == 0) break;
    if (!backoff.pause([&] { return advance(others) || done(); }, left_ns)) continue;
    queue_.look_at_clock();
    others.look_at_clock();
  }
  if (!done() && engine_->self_driven())
    queue_.look_at_clock();  // the wait may have been too short for a check of the time-out
  queue_.waiters.fetch_sub(1);
  if (queue_.busy()) ProgressEngine::get().wake();
}

bool HostWork::test() {
  if (!done() && engine_->self_driven()) engine_->progress(Deadline{0});
  return done();
}

void HostWork::complete(const std::optional<Failure>& failure) noexcept {
  end(failure);
  ProgressEngine::get().completed.fetch_add(1, std::memory_order_seq_cst);
  engine_->notifier().notify();
}

// Calls that add operations come one after another, so no other thread changes next_sequence_ meanwhile.
uint64_t OpQueue::take_sequence() noexcept {
  const uint64_t sequence = next_sequence_.load(std::memory_order_relaxed);
  next_sequence_.store(sequence + 1, std::memory_order_relaxed);
  return sequence;
}

void OpQueue::run(const Call& call) {
  if (!busy() && driver_.try_lock_alone()) {
    const WakeIfBusy after(*this);
    const QueueGuard seat(driver_);
    if (!busy()) {
      if (const auto failure = run_alone(call)) throw Error(*failure);
      return;
    }
  }
  start(call)->wait(Deadline::never());
}

std::optional<Failure> OpQueue::run_alone(const Call& call) {
  if (call.kind == OpKind::kSend) return run_as<SendMessage>(call);
  if (call.kind == OpKind::kRecv) return run_as<RecvMessage>(call);
  if (SmallCollective::suits(engine_.group(), call)) return run_as<SmallCollective>(call);
  return run_as<Collective>(call);
}

// Runs an operation of a kind known at compile time, so that small operations need no indirect calls. The
// queue's lock is taken before this checks whether the rank is leaving.
template <typename Kind>
std::optional<Failure> OpQueue::run_as(const Call& call) {
  Kind operation(engine_.group(), call, take_sequence());
  if (engine_.refuses()) return engine_.refusal(operation);
  operation.publish();
  const int64_t now = tick_now();
  const int timeout_ms = engine_.state.timeout_ms(call);
  operation.create(now, timeout_ms);
  operation.start(now, timeout_ms);
  Progress progress = step(operation);
  if (progress == Progress::kPending || progress == Progress::kMoved)
    progress = step_until_over(operation, progress);
  return engine_.finish(operation, progress);
}

// Runs steps of an operation until it has ended, and waits between the steps.
template <typename Kind>
Progress OpQueue::step_until_over(Kind& operation, Progress progress) {
  Backoff backoff(engine_.notifier(), engine_.spins());
  OtherQueues others(engine_.self_driven(), *this);
  while (progress == Progress::kPending || progress == Progress::kMoved) {
    if (progress == Progress::kMoved || others.drive()) {
      backoff.reset();
      if (progress == Progress::kPending) operation.glance_at_clock();
    } else if (backoff.pause(
                   [&] { return (progress = step(operation)) != Progress::kPending || others.drive(); })) {
      if (progress == Progress::kPending) operation.look_at_clock();
      others.look_at_clock();
    }
    if ((progress == Progress::kPending || progress == Progress::kMoved) && operation.may_step())
      progress = step(operation);
  }
  return progress;
}

std::shared_ptr<HostWork> OpQueue::start(const Call& call) {
  auto work = std::make_shared<HostWork>(engine_.share(), *this, call);
  bool first = false;
  {
    MutexLock lock(queue_mutex_);
    first = queue_.empty();
    queue_.push_back(work);  // first, because it may throw for lack of memory
    work->operation_ = &work->box_.emplace(engine_.group(), work->call(), take_sequence());
    engine_.begin();
    if (engine_.refuses()) {
      engine_.end();
      queue_.pop_back();
      work->complete(engine_.refusal(*work->operation_));
      return work;
    }
    work->operation_->create(tick_now(), engine_.state.timeout_ms(call));
    queued_.store(queue_.size(), std::memory_order_release);
  }
  if (first) begin_first(work);
  // A queue that was empty has no driver yet. If memory is too short to give it one, waiting threads drive
  // it.
  if (first && busy())
    capture([&] { ProgressEngine::get().add(engine_.share(), *this); }, [](dsc_result_t, const char*) {});
  return work;
}

// Begins the operation on the calling thread. If this rank is the last to arrive, it then finishes a small
// operation without waking its progress thread. Another thread may already have begun the operation.
void OpQueue::begin_first(const std::shared_ptr<HostWork>& work) {
  if (!driver_.try_lock()) return;
  if (front() == work && work->operation_->started_ticks() == 0) {
    Operation& operation = *work->operation_;
    operation.start(tick_now(), engine_.state.timeout_ms(operation.call()));
    const Progress entered = contain(operation, [&] {
      operation.enter();
      return Progress::kMoved;
    });
    if (entered == Progress::kMoved && operation.bytes() <= kInlineBytes) drive_first();
  }
  driver_.unlock();
}

std::shared_ptr<HostWork> OpQueue::front() {
  MutexLock lock(queue_mutex_);
  return queue_.empty() ? nullptr : queue_.front();
}

void OpQueue::pop() {
  MutexLock lock(queue_mutex_);
  queue_.pop_front();
  queued_.store(queue_.size(), std::memory_order_release);
}

bool OpQueue::drive() {
  if (!busy()) return false;  // leaves the lock to operations that are run without queueing
  if (!driver_.try_lock()) return false;
  const bool moved = drive_first();
  driver_.unlock();
  return moved;
}

// Runs one step of the first operation and removes the operation if it has ended. True if it made progress.
bool OpQueue::drive_first() {
  const std::shared_ptr<HostWork> work = front();
  if (!work) return false;
  Operation& operation = *work->operation_;
  if (operation.started_ticks() == 0) operation.start(tick_now(), engine_.state.timeout_ms(operation.call()));
  const Progress progress = step(operation);
  if (progress == Progress::kPending) operation.glance_at_clock();
  if (progress == Progress::kPending || progress == Progress::kMoved) return progress == Progress::kMoved;
  const std::optional<Failure> failure = engine_.finish(operation, progress);
  engine_.end();
  const Completing completing;
  pop();
  work->box_.clear();
  work->complete(failure);
  return true;
}

void OpQueue::look_at_clock() {
  if (!driver_.try_lock()) return;
  if (const auto work = front(); work && work->operation_->started_ticks() != 0)
    work->operation_->look_at_clock();
  driver_.unlock();
}

bool OpQueue::drain(Deadline deadline) {
  std::shared_ptr<HostWork> last;
  {
    MutexLock lock(queue_mutex_);
    if (queue_.empty()) return true;
    last = queue_.back();
  }
  bool over = true;
  capture([&] { over = last->wait(deadline); }, [](dsc_result_t, const char*) {});
  return over;
}

}  // namespace dsc
