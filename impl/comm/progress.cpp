#include "comm/progress.hpp"

#include <poll.h>

#include <algorithm>

#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/process_guard.hpp"
#include "base/thread.hpp"
#include "comm/host_comm.hpp"

namespace dsc {

namespace {

constexpr int kPauseMs = 1;

// A thread that began to wait while this one held the lane may have gone to sleep over it.
void ring_for_waiters(const BusyLane& entry) noexcept {
  if (entry.lane->waiters > 0) entry.comm->bell().ring();
}

}  // namespace

bool LaneScope::holds(const BusyLane& entry) const noexcept {
  if (for_thread && entry.comm->self_driven()) return false;
  return !world || &entry.comm->world() == world;
}

ProgressEngine& ProgressEngine::get() {
  static ProgressEngine* const instance = new ProgressEngine;
  return *instance;
}

void ProgressEngine::start_thread_once() {
  MutexLock lock(mutex_);
  if (has_thread_) return;
  start_thread("dsc-progress", [this] {
    for (;;)  // an exception (memory) must not end the progress of everybody
      guard_thread([this] { run(); },
                   [](const char* text) { log(DSC_LOG_ERROR, "progress thread: %s", text); });
  }).detach();
  has_thread_ = true;
}

void ProgressEngine::add(std::shared_ptr<HostComm> comm, Lane& lane) {
  if (!comm->self_driven()) start_thread_once();
  {
    MutexLock lock(mutex_);
    if (std::none_of(lanes_.begin(), lanes_.end(), [&](const BusyLane& e) { return e.lane == &lane; }))
      lanes_.push_back({std::move(comm), &lane});
  }
  wake();
}

void ProgressEngine::wake() noexcept {
  {
    MutexLock lock(mutex_);
    changes_.fetch_add(1, std::memory_order_seq_cst);
  }
  news_.notify_one();
  Process::get().bell().ring();  // drivers sleep there, beside the lanes that they have
}

BusyLane ProgressEngine::take_idle() noexcept {
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(lanes_.begin(), lanes_.end(), [](const BusyLane& e) { return !e.lane->busy(); });
  if (found == lanes_.end()) return {};
  BusyLane idle = std::move(*found);
  lanes_.erase(found);
  return idle;
}

void ProgressEngine::release_idle() noexcept {
  bool any = false;
  while (take_idle().comm) any = true;  // released outside the lock: a world may end with it
  if (any) wake();                      // a driver may have it in its own list
}

std::vector<BusyLane> ProgressEngine::list(const LaneScope& scope, uint64_t& changes) {
  std::vector<BusyLane> idle;  // released outside the lock, too
  std::vector<BusyLane> chosen;
  MutexLock lock(mutex_);
  idle.reserve(lanes_.size());  // nothing may fail half-way
  chosen.reserve(lanes_.size());
  changes = changes_.load(std::memory_order_relaxed);
  const auto quiet =
      std::stable_partition(lanes_.begin(), lanes_.end(), [](const BusyLane& e) { return e.lane->busy(); });
  std::move(quiet, lanes_.end(), std::back_inserter(idle));
  lanes_.erase(quiet, lanes_.end());
  std::copy_if(lanes_.begin(), lanes_.end(), std::back_inserter(chosen),
               [&](const BusyLane& entry) { return scope.holds(entry); });
  return chosen;
}

void ProgressEngine::await_news(uint64_t seen) {
  MutexLock lock(mutex_);
  while (changes() == seen) news_.wait(mutex_);
}

void ProgressEngine::run() {
  DrivenLanes lanes(LaneScope{nullptr, true});
  Backoff backoff(Process::get().bell(), 0);
  for (;;) {
    if (lanes.drive()) {
      backoff.reset();
      continue;
    }
    if (!lanes.any_unattended()) {
      const uint64_t seen = lanes.seen();
      lanes.forget();
      if (lanes.lacks_memory()) poll(nullptr, 0, kPauseMs);  // the news are known, but not what they are
      await_news(seen);
      continue;
    }
    if (backoff.pause([&] { return lanes.drive(); })) lanes.look_at_clock();
  }
}

// Without memory for the new lanes, the old ones go on, and the next call tries again.
void DrivenLanes::refresh() noexcept {
  ProgressEngine& engine = ProgressEngine::get();
  if (engine.changes() == seen_) return;
  lacks_memory_ = !call_out([&] { lanes_ = engine.list(scope_, seen_); });
}

bool DrivenLanes::drive(const Lane* except) noexcept {
  refresh();
  bool moved = false;
  for (const BusyLane& entry : lanes_) {
    if (entry.lane == except || entry.lane->waiters > 0) continue;
    moved = entry.lane->drive() || moved;
    ring_for_waiters(entry);
  }
  return moved;
}

void DrivenLanes::look_at_clock() noexcept {
  for (const BusyLane& entry : lanes_) {
    if (entry.lane->waiters > 0) continue;
    entry.lane->look_at_clock();
    ring_for_waiters(entry);
  }
}

bool DrivenLanes::any_busy() noexcept {
  refresh();
  return std::any_of(lanes_.begin(), lanes_.end(), [](const BusyLane& e) { return e.lane->busy(); });
}

bool DrivenLanes::any_unattended() {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const BusyLane& e) { return e.lane->busy() && e.lane->waiters == 0; });
}

void DrivenLanes::forget() noexcept { lanes_.clear(); }

bool make_progress(const LaneScope& scope, int spins, Deadline deadline) {
  const ProgressEngine& engine = ProgressEngine::get();
  const uint64_t before = engine.completed.load(std::memory_order_seq_cst);
  const auto completed = [&] { return engine.completed.load(std::memory_order_seq_cst) != before; };
  DrivenLanes lanes(scope);
  Backoff backoff(Process::get().bell(), spins);
  for (;;) {
    const bool moved = lanes.drive();
    if (!lanes.any_busy() && engine.completing.load(std::memory_order_seq_cst) == 0) return true;
    const int64_t left_ns = deadline.remaining_ns();
    if (!moved && left_ns == 0) lanes.look_at_clock();  // a caller that never waits still hears of time-outs
    if (completed() || left_ns == 0) return false;
    if (moved)
      backoff.reset();
    else if (backoff.pause([&] { return lanes.drive() || completed(); }, left_ns))
      lanes.look_at_clock();
  }
}

bool progress_all(Deadline deadline) { return make_progress({}, 0, deadline); }

}  // namespace dsc
