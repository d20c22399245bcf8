#include "engine_host/progress.hpp"

#include <poll.h>

#include <algorithm>

#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/process_guard.hpp"
#include "base/thread.hpp"
#include "engine_host/host_engine.hpp"

namespace dsc {

namespace {

constexpr int kPauseMs = 1;

// Wakes threads that wait for a queue which this thread drove. They may have gone to sleep because of that.
void notify_waiters(const BusyQueue& entry) noexcept {
  if (entry.queue->waiters > 0) entry.engine->notifier().notify();
}

}  // namespace

bool QueueScope::holds(const BusyQueue& entry) const noexcept {
  if (for_thread && entry.engine->self_driven()) return false;
  return !host || &entry.engine->host() == host;
}

ProgressEngine& ProgressEngine::get() {
  static ProgressEngine* const instance = new ProgressEngine;
  return *instance;
}

void ProgressEngine::start_thread_once() {
  MutexLock lock(mutex_);
  if (has_thread_) return;
  start_thread("dsc-progress", [this] {
    for (;;)  // an exception (for lack of memory) must not end all progress
      guard_thread([this] { run(); },
                   [](const char* text) { log(DSC_LOG_LEVEL_ERROR, "progress thread: %s", text); });
  }).detach();
  has_thread_ = true;
}

void ProgressEngine::add(std::shared_ptr<HostEngine> engine, OpQueue& queue) {
  if (!engine->self_driven()) start_thread_once();
  {
    MutexLock lock(mutex_);
    if (std::none_of(queues_.begin(), queues_.end(), [&](const BusyQueue& e) { return e.queue == &queue; }))
      queues_.push_back({std::move(engine), &queue});
  }
  wake();
}

void ProgressEngine::wake() noexcept {
  {
    MutexLock lock(mutex_);
    changes_.fetch_add(1, std::memory_order_seq_cst);
  }
  news_.notify_one();
  Process::get().notifier().notify();  // wakes other drivers, which sleep on the notifier
}

BusyQueue ProgressEngine::take_idle() noexcept {
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(queues_.begin(), queues_.end(), [](const BusyQueue& e) { return !e.queue->busy(); });
  if (found == queues_.end()) return {};
  BusyQueue idle = std::move(*found);
  queues_.erase(found);
  return idle;
}

void ProgressEngine::release_idle() noexcept {
  bool any = false;
  // Queues are released outside the lock, because releasing the last queue may end a world.
  while (take_idle().engine) any = true;
  if (any) wake();  // a driver may still have a released queue in its list
}

std::vector<BusyQueue> ProgressEngine::list(const QueueScope& scope, uint64_t& changes) {
  std::vector<BusyQueue> idle;  // destroyed outside the lock, as in release_idle()
  std::vector<BusyQueue> chosen;
  MutexLock lock(mutex_);
  idle.reserve(queues_.size());  // reserved first, so that the code below cannot fail halfway
  chosen.reserve(queues_.size());
  changes = changes_.load(std::memory_order_relaxed);
  const auto first_idle = std::stable_partition(queues_.begin(), queues_.end(),
                                                [](const BusyQueue& e) { return e.queue->busy(); });
  std::move(first_idle, queues_.end(), std::back_inserter(idle));
  queues_.erase(first_idle, queues_.end());
  std::copy_if(queues_.begin(), queues_.end(), std::back_inserter(chosen),
               [&](const BusyQueue& entry) { return scope.holds(entry); });
  return chosen;
}

void ProgressEngine::await_news(uint64_t seen) {
  MutexLock lock(mutex_);
  while (changes() == seen) news_.wait(mutex_);
}

void ProgressEngine::run() {
  DrivenQueues queues(QueueScope{nullptr, true});
  Backoff backoff(Process::get().notifier(), 0);
  for (;;) {
    if (queues.drive()) {
      backoff.reset();
      continue;
    }
    if (!queues.any_unattended()) {
      const uint64_t seen = queues.seen();
      queues.forget();
      if (queues.lacks_memory()) poll(nullptr, 0, kPauseMs);  // new queues exist, but could not be listed
      await_news(seen);
      continue;
    }
    if (backoff.pause([&] { return queues.drive(); })) queues.look_at_clock();
  }
}

// If memory is too short to list new queues, keeps the old list; the next call tries again.
void DrivenQueues::refresh() noexcept {
  ProgressEngine& engine = ProgressEngine::get();
  if (engine.changes() == seen_) return;
  lacks_memory_ = !call_out([&] { queues_ = engine.list(scope_, seen_); });
}

bool DrivenQueues::drive(const OpQueue* except) noexcept {
  refresh();
  bool moved = false;
  for (const BusyQueue& entry : queues_) {
    if (entry.queue == except || entry.queue->waiters > 0) continue;
    moved = entry.queue->drive() || moved;
    notify_waiters(entry);
  }
  return moved;
}

void DrivenQueues::look_at_clock() noexcept {
  for (const BusyQueue& entry : queues_) {
    if (entry.queue->waiters > 0) continue;
    entry.queue->look_at_clock();
    notify_waiters(entry);
  }
}

bool DrivenQueues::any_busy() noexcept {
  refresh();
  return std::any_of(queues_.begin(), queues_.end(), [](const BusyQueue& e) { return e.queue->busy(); });
}

bool DrivenQueues::any_unattended() {
  return std::any_of(queues_.begin(), queues_.end(),
                     [](const BusyQueue& e) { return e.queue->busy() && e.queue->waiters == 0; });
}

void DrivenQueues::forget() noexcept { queues_.clear(); }

void begin_outside(HostGroup& host) noexcept {
  host.outside_operations.fetch_add(1, std::memory_order_seq_cst);
  ProgressEngine::get().outside.fetch_add(1, std::memory_order_seq_cst);
}

void end_outside(HostGroup& host) noexcept {
  ProgressEngine& engine = ProgressEngine::get();
  host.outside_operations.fetch_sub(1, std::memory_order_seq_cst);
  engine.outside.fetch_sub(1, std::memory_order_seq_cst);
  engine.completed.fetch_add(1, std::memory_order_seq_cst);
  Process::get().notifier().notify();
}

bool make_progress(const QueueScope& scope, int spins, Deadline deadline) {
  const ProgressEngine& engine = ProgressEngine::get();
  const uint64_t before = engine.completed.load(std::memory_order_seq_cst);
  const auto completed = [&] { return engine.completed.load(std::memory_order_seq_cst) != before; };
  const auto none_outside = [&] {
    return (scope.host ? scope.host->outside_operations : engine.outside).load(std::memory_order_seq_cst) ==
           0;
  };
  DrivenQueues queues(scope);
  Backoff backoff(Process::get().notifier(), spins);
  for (;;) {
    const bool moved = queues.drive();
    if (!queues.any_busy() && engine.completing.load(std::memory_order_seq_cst) == 0 && none_outside())
      return true;
    const int64_t left_ns = deadline.remaining_ns();
    if (!moved && left_ns == 0) queues.look_at_clock();  // callers that never wait must also see time-outs
    if (completed() || left_ns == 0) return false;
    if (moved)
      backoff.reset();
    else if (backoff.pause([&] { return queues.drive() || completed(); }, left_ns))
      queues.look_at_clock();
  }
}

}  // namespace dsc
