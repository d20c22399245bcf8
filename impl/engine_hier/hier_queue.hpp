// A queue of operations between hosts. Operations block, so they run one after another: run() uses the
// caller's thread, start() a thread of the queue, which the first start() creates.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/fd.hpp"
#include "base/mutex.hpp"
#include "comm/work.hpp"
#include "comm/work_set.hpp"
#include "control/call.hpp"
#include "control/recorder.hpp"
#include "transport/event_count.hpp"

namespace dsc {

// An operation that start() has queued. Any thread may wait for it.
class HierWork final : public Work {
 public:
  HierWork(const Call& call, uint64_t group, uint64_t number) : call_(call), group_(group), number_(number) {}

  bool done() const noexcept override { return done_.load(std::memory_order_acquire); }
  bool wait(Deadline deadline) override;
  Failure failure() const override;
  int event_fd() override;
  void close_event_fd() noexcept override;
  void notify(std::shared_ptr<Countdown> countdown) override;

  const Call& call() const noexcept { return call_; }
  uint64_t number() const noexcept override { return number_; }
  void complete(Failure failure) noexcept;

  std::optional<Record> record;  // used by the queue only

 private:
  const Call call_;
  const uint64_t group_;
  const uint64_t number_;
  std::atomic<bool> done_{false};
  mutable Mutex mutex_;
  Condition completed_;
  Failure failure_ DSC_GUARDED_BY(mutex_);
  UniqueFd event_fd_ DSC_GUARDED_BY(mutex_);
  std::shared_ptr<Countdown> countdown_ DSC_GUARDED_BY(mutex_);
};

class HierQueue {
 public:
  // Opens the recorder's entry of an operation; returns nullopt if the operation is refused. Does not
  // throw.
  using Open = std::function<std::optional<Record>(const Call& call, uint64_t number)>;
  // Runs one operation to its end; the code is DSC_OK after success. Does not throw.
  using Execute = std::function<Failure(const Call& call, uint64_t number, std::optional<Record>& record)>;

  // `completions` is incremented whenever an operation has ended.
  HierQueue(Open open, Execute execute, EventCount& completions)
      : open_(std::move(open)), execute_(std::move(execute)), completions_(completions) {}
  // Waits for what is queued, which ends soon because the group has failed or was left.
  ~HierQueue();
  HierQueue(const HierQueue&) = delete;
  HierQueue& operator=(const HierQueue&) = delete;

  // Runs the operation on the calling thread, after those that are queued.
  Failure run(const Call& call);
  std::shared_ptr<Work> start(const Call& call, uint64_t group);
  void drain();
  void restart_numbers() noexcept { number_.store(0); }
  // True while an operation has not completed. It turns false before the caller can see the completion.
  bool busy() const noexcept { return running_.load() > 0; }

 private:
  void work();
  void begin_one() noexcept;
  void end_one();

  const Open open_;
  const Execute execute_;
  EventCount& completions_;
  std::atomic<int> running_{0};      // operations that are not complete for their callers
  std::atomic<int> pending_{0};      // operations that this queue still works on
  std::atomic<uint64_t> number_{0};  // the number of the latest operation
  Mutex mutex_;
  Condition changed_;
  std::deque<std::shared_ptr<HierWork>> queue_ DSC_GUARDED_BY(mutex_);
  bool ending_ DSC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace dsc
