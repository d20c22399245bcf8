// Starts the reductions of complete buckets in launch order, which is the same on all ranks. If there is a
// hook, calls its steps.
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

// Sets a flag while the object exists.
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

  // Must be called between iterations.
  void set_hook(std::shared_ptr<BucketHook> hook);
  const std::shared_ptr<BucketHook>& hook() const noexcept { return hook_; }
  void load_hook(BucketSet& set, std::span<const std::byte> state);
  // Leaks the hook on purpose, because an operation may still use its memory.
  void keep_hook() { new std::shared_ptr<BucketHook>(hook_); }
  // Throws REENTRANT if the calling thread is inside this object's hook.
  void refuse_inside_hook() const;
  // Throws STATE if the hook computes on the host and the stream is captured in a graph.
  void expect_capturable(const Space& space, void* stream) const;
  void begin(BucketSet& set, int divisor);

  // May be called from any thread. Records that another parameter of a bucket has its gradient. Returns true
  // for the last parameter of the bucket.
  bool count_ready(size_t bucket) noexcept;

  // May be called from any thread. Starts all complete buckets in order. If a bucket cannot be started, the
  // next call tries again. `before_each` is called before each start and may throw.
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

  // Returns the number of buckets that were started.
  size_t launched() DSC_EXCLUDES(mutex_);

  // Waits for the reduction of a started bucket and returns its result. On a device, the reduction may still
  // be running.
  Failure await(size_t bucket) DSC_EXCLUDES(mutex_);
  // Same as await(), but also waits for a reduction on a device.
  Failure await_end(size_t bucket) DSC_EXCLUDES(mutex_);
  // Called after all buckets were launched. Calls the hook until every bucket is reduced. The order of steps
  // is the same on all ranks.
  void complete_hooks() DSC_EXCLUDES(mutex_);
  Work* work(size_t bucket) const noexcept { return buckets_[bucket].work.get(); }

  void end() DSC_EXCLUDES(mutex_);

  // Returns true while a thread is in a hook or in the start of an operation. It may be waiting there for
  // other ranks.
  bool is_starting() const noexcept { return starting_.load(); }
  bool is_running() DSC_EXCLUDES(mutex_);
  // Waits for all started operations. Returns false if one may still be running at the deadline.
  bool wait_idle(Deadline deadline) noexcept;

  const std::shared_ptr<Timeline> timeline;  // times of the current iteration

 private:
  struct Bucket {
    std::atomic<size_t> pending{0};
    std::shared_ptr<Work> work;  // the reduction, or the hook's latest step
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
  // The bucket set to which the hook's state belongs; null if the hook has no state yet.
  const BucketSet* hook_set_ = nullptr;
  BucketSet* set_ = nullptr;
  int divisor_ = 1;
  Mutex mutex_;
  std::vector<Bucket> buckets_;  // mutex_ guards all members except pending
  size_t launched_ DSC_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> starting_{false};
};

}  // namespace dsc
