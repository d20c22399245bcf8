#include "comm/progress.hpp"

#include <algorithm>

#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "comm/host_comm.hpp"

namespace dsc {

ProgressEngine& ProgressEngine::get() {
  static ProgressEngine* const instance = new ProgressEngine;
  return *instance;
}

ProgressEngine::ProgressEngine() {
  start_thread("dsc-progress", [this] {
    for (;;)  // an exception (memory) must not end the progress of everybody
      guard_thread([this] { run(); },
                   [](const char* text) { log(DSC_LOG_ERROR, "progress thread: %s", text); });
  }).detach();
}

void ProgressEngine::add(std::shared_ptr<HostComm> comm, Lane& lane) {
  {
    MutexLock lock(mutex_);
    added_.push_back({std::move(comm), &lane});
  }
  wake();
}

void ProgressEngine::wake() noexcept {
  {
    MutexLock lock(mutex_);
    woken_ = true;
    news_.store(true, std::memory_order_seq_cst);
  }
  changed_.notify_one();
  Process::get().bell().ring();  // it may sleep there, beside the lanes it has
}

// Takes over new lanes and drops idle ones; sleeps while there is nothing to do for this thread.
void ProgressEngine::collect() {
  std::vector<Entry> idle;  // released outside the lock
  mutex_.lock();
  for (;;) {
    woken_ = false;
    news_ = false;
    for (Entry& entry : added_)
      if (std::none_of(active_.begin(), active_.end(),
                       [&](const Entry& known) { return known.lane == entry.lane; }))
        active_.push_back(std::move(entry));
      else
        idle.push_back(std::move(entry));
    added_.clear();
    const auto quiet =
        std::stable_partition(active_.begin(), active_.end(), [](const Entry& e) { return e.lane->busy(); });
    std::move(quiet, active_.end(), std::back_inserter(idle));
    active_.erase(quiet, active_.end());
    if (std::any_of(active_.begin(), active_.end(), [](const Entry& e) { return e.lane->waiters == 0; })) {
      mutex_.unlock();
      return;
    }
    if (!idle.empty()) {  // a world may end with the last of them
      mutex_.unlock();
      idle.clear();
      mutex_.lock();
      continue;
    }
    while (!woken_) changed_.wait(mutex_);
  }
}

bool ProgressEngine::drive_all() {
  bool moved = false;
  for (const Entry& entry : active_) {
    if (entry.lane->waiters > 0) continue;
    moved = entry.lane->drive() || moved;
    // A thread that began to wait meanwhile found the lane locked, and may have gone to sleep over it.
    if (entry.lane->waiters > 0) entry.comm->bell().ring();
  }
  return moved;
}

void ProgressEngine::run() {
  Bell& bell = Process::get().bell();
  Backoff backoff(bell, 0);
  for (;;) {
    collect();
    if (drive_all()) {
      backoff.reset();
      continue;
    }
    if (!backoff.pause([this] { return news_.load(std::memory_order_seq_cst) || drive_all(); })) continue;
    for (const Entry& entry : active_) entry.lane->look_at_clock();
  }
}

}  // namespace dsc
