// Starts the reductions of complete buckets in launch order, which is the same on all ranks, and drives a
// hook through its steps.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "comm/comm.hpp"
#include "reducer/bucket_set.hpp"
#include "reducer/hook.hpp"
#include "reducer/timeline.hpp"

namespace dsc {

// Sets a flag for its lifetime.
class FlagScope {
 public:
  explicit FlagScope(std::atomic<bool>& flag) noexcept : flag_(flag) { flag_.store(true); }
  ~FlagScope() { flag_.store(false); }
  FlagScope(const FlagScope&) = delete;
  FlagScope& operator=(const FlagScope&) = delete;

 private:
  std::atomic<bool>& flag_;
};

class BucketRunner {
 public:
  BucketRunner(Comm& group, const ParamList& params);

  // Between iterations.
  void set_hook(std::shared_ptr<BucketHook> hook);
  const std::shared_ptr<BucketHook>& hook() const noexcept { return hook_; }
  void load_hook(BucketSet& set, std::span<const std::byte> state);
  // Never frees the hook, whose memory an operation may still use.
  void keep_hook() { new std::shared_ptr<BucketHook>(hook_); }
  // Throws REENTRANT on a thread that is inside this object's hook.
  void refuse_inside_hook() const;
  // Throws STATE for a stream that is captured in a graph, if the hook computes on the host.
  void expect_capturable(const Space& space, void* stream) const;
  void begin(BucketSet& set, int divisor);

  // Any thread: records that another parameter of a bucket has its gradient. Returns true if it was the last.
  bool count_ready(size_t bucket) noexcept;

  // Any thread. Starts all buckets that are complete, in order. If one cannot be started, the next call
  // tries again. `before_each` runs before each start and may throw.
  template <typename Check>
  void launch(const Check& before_each) DSC_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!is_next_complete()) return;
    const FlagScope scope(starting_);
    while (is_next_complete()) {
      before_each();
      start_next();
    }
  }

  // Number of buckets that were started.
  size_t launched() DSC_EXCLUDES(mutex_);

  // Waits until a bucket that was started is reduced, and returns how that ended.
  Failure await(size_t bucket) DSC_EXCLUDES(mutex_);
  // The same, but also waits on a device, where await() does not.
  Failure await_end(size_t bucket) DSC_EXCLUDES(mutex_);
  // After all buckets were launched: drives the hook until every bucket is reduced. The order of steps is
  // the same on all ranks.
  void complete_hooks() DSC_EXCLUDES(mutex_);
  Work* work(size_t bucket) const noexcept { return buckets_[bucket].work.get(); }

  void end() DSC_EXCLUDES(mutex_);

  // True while a thread is inside an engine's start or a hook, where it may wait for other ranks.
  bool is_starting() const noexcept { return starting_.load(); }
  bool is_running() DSC_EXCLUDES(mutex_);
  // Waits for all operations that were started; returns false if one may still run at the deadline.
  bool wait_idle(Deadline deadline) noexcept;

  const std::shared_ptr<Timeline> timeline;  // of the iteration

 private:
  struct Bucket {
    std::atomic<size_t> pending{0};
    std::shared_ptr<Work> work;  // of the reduction, or of the hook's latest step
    int next_step = 0;
    bool reduced = false;
  };

  bool is_next_complete() const noexcept DSC_REQUIRES(mutex_);
  void start_next() DSC_REQUIRES(mutex_);
  void step(size_t bucket) DSC_REQUIRES(mutex_);
  void advance(size_t bucket) DSC_REQUIRES(mutex_);
  HookBucket view_of(const BucketSet& set, size_t bucket) const;
  std::shared_ptr<Work> work_of(size_t bucket) DSC_EXCLUDES(mutex_);

  Comm& group_;
  const ParamList& params_;
  std::shared_ptr<BucketHook> hook_;
  const BucketSet* hook_set_ = nullptr;  // the bucket set to which the hook's state belongs; null: none
  BucketSet* set_ = nullptr;
  int divisor_ = 1;
  Mutex mutex_;
  std::vector<Bucket> buckets_;  // mutex_ guards all but pending
  size_t launched_ DSC_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> starting_{false};
};

}  // namespace dsc
