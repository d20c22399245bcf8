#include "base/dispatch.hpp"

#include <semaphore.h>

#include <array>
#include <atomic>

#include "base/guard.hpp"
#include "base/mutex.hpp"
#include "base/per_process.hpp"
#include "base/thread.hpp"

namespace dsc {
namespace {

// The function for one kind of work (a Duty), and whether it has been requested.
struct Work {
  std::atomic<void (*)()> run{nullptr};
  std::atomic<bool> wanted{false};
};

// Owns the background thread. The thread sleeps on a semaphore, because posting a semaphore is
// async-signal-safe.
class Dispatcher {
 public:
  Dispatcher() { sem_init(&calls_, 0, 0); }

  void start(Duty duty, void (*run)()) {
    work_of(duty).run.store(run);
    MutexLock lock(mutex_);
    if (started_) return;
    start_thread("dsc-log", [this] { run_for_ever(); }).detach();
    started_ = true;
  }

  void call(Duty duty) noexcept {
    if (!work_of(duty).wanted.exchange(true)) sem_post(&calls_);
  }

 private:
  Work& work_of(Duty duty) noexcept { return works_[static_cast<size_t>(duty)]; }

  void run_for_ever() noexcept {
    for (;;) {
      while (sem_wait(&calls_) != 0) {
      }
      for (Work& work : works_)
        if (auto* const run = work.run.load(); run && work.wanted.exchange(false))
          // If the function runs out of memory, its records stay queued, and the next dispatch() delivers
          // them.
          guard_thread(run, [](const char*) {});
    }
  }

  sem_t calls_;
  std::array<Work, 2> works_;
  Mutex mutex_;
  bool started_ DSC_GUARDED_BY(mutex_) = false;
};

}  // namespace

void start_dispatch(Duty duty, void (*run)()) { PerProcess<Dispatcher>::get().start(duty, run); }

void dispatch(Duty duty) noexcept {
  if (Dispatcher* const instance = PerProcess<Dispatcher>::find()) instance->call(duty);
}

}  // namespace dsc
