#include "engine_hier/hier_queue.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "base/process_guard.hpp"
#include "base/thread.hpp"
#include "engine_host/progress.hpp"

namespace dsc {

void HierWork::await_end(Deadline deadline) {
  constexpr int64_t kLongestWaitNs = 3600 * kNsPerSecond;  // a longer wait would overflow the clock
  MutexLock lock(mutex_);
  while (!done() && !deadline.passed())
    completed_.wait_for(mutex_, std::chrono::nanoseconds(std::min(deadline.remaining_ns(), kLongestWaitNs)));
}

void HierWork::complete(const std::optional<Failure>& failure) noexcept {
  MutexLock lock(mutex_);
  end(failure);
  completed_.notify_all();
}

HierQueue::~HierQueue() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::optional<Failure> HierQueue::run(const Call& call) {
  drain();
  begin_one();
  const uint64_t sequence = ++sequence_;
  std::optional<Record> record = open_(call, sequence);
  const std::optional<Failure> failure = execute_(call, sequence, record);
  running_.fetch_sub(1);
  end_one();
  return failure;
}

std::shared_ptr<Work> HierQueue::start(const Call& call, uint64_t group) {
  auto work = std::make_shared<HierWork>(call, group, sequence_.load() + 1);
  MutexLock lock(mutex_);
  if (!thread_.joinable()) thread_ = start_thread("dsc-hier", [this] { this->work(); });
  queue_.push_back(work);
  work->record = open_(call, ++sequence_);  // numbered after it is queued, because queueing may throw
  begin_one();
  begin_outside(host_);
  changed_.notify_all();
  return work;
}

void HierQueue::drain() {
  MutexLock lock(mutex_);
  while (pending_.load() > 0) changed_.wait(mutex_);
}

void HierQueue::work() {
  for (;;) {
    std::shared_ptr<HierWork> next;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !ending_) changed_.wait(mutex_);
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    const std::optional<Failure> failure = execute_(next->call(), next->sequence(), next->record);
    running_.fetch_sub(1);  // before complete(): a caller that sees the completion must find the queue idle
    next->complete(failure);
    end_one();
    end_outside(host_);
  }
}

void HierQueue::begin_one() noexcept {
  running_.fetch_add(1);
  pending_.fetch_add(1);
}

void HierQueue::end_one() {
  MutexLock lock(mutex_);
  pending_.fetch_sub(1);
  changed_.notify_all();
}

}  // namespace dsc
