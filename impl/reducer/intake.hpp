// Takes the gradients of an iteration into their buckets. The calling thread moves memory outside the lock.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/mutex.hpp"
#include "reducer/bucket_runner.hpp"
#include "reducer/marks.hpp"

namespace dsc {

class GradientIntake {
 public:
  // `complete` is called, without the lock, when the last gradient of a bucket was taken.
  GradientIntake(const ParamList& params, bool static_graph, BucketRunner& runner,
                 std::function<void()> complete)
      : marks(params, static_graph), runner_(runner), complete_(std::move(complete)) {}

  Mutex mutex;
  Marks marks DSC_GUARDED_BY(mutex);

  // Sets the buckets between iterations.
  void use(BucketSet& set) noexcept { set_ = &set; }
  // Before an iteration.
  void begin(bool local) DSC_REQUIRES(mutex);
  BucketSet& set() const noexcept { return *set_; }
  // In a local iteration nothing is reduced.
  bool is_local() const noexcept { return local_.load(std::memory_order_relaxed); }

  // Any thread, for a parameter whose mark was accepted. Runs a step that moves its gradient; if that throws,
  // the mark is taken back.
  template <typename Step>
  void run(size_t index, const Step& step) DSC_EXCLUDES(mutex) {
    capture(step, [&](const Error& error) {
      const MutexLock lock(mutex);
      marks.take_back(index);
      throw Error(error);
    });
  }
  // The same for a gradient that is only added to what is collected.
  template <typename Step>
  void add(size_t index, const Step& step) DSC_EXCLUDES(mutex) {
    capture(step, [&](const Error& error) {
      const MutexLock lock(mutex);
      marks.cancel_sum(index);
      throw Error(error);
    });
  }
  // What is to be taken with a complete gradient. It is asked for under the lock under which the mark was
  // accepted, so that a mark locks no more often than it has to.
  struct Complete {
    bool has_sum = false;
    std::vector<size_t> frozen_unused;  // ready without a mark; see take_frozen_unused()
  };
  Complete complete(size_t index) DSC_REQUIRES(mutex) {
    return {marks.has_sum(index), marks.take_frozen_unused()};
  }
  // Takes a complete gradient: into its bucket, or in a local iteration to what was collected.
  void take(size_t index, const void* gradient, void* stream, const Complete& with) DSC_EXCLUDES(mutex);
  // Takes zeros, or what local iterations have collected.
  void take_without_gradient(size_t index) DSC_EXCLUDES(mutex);

  // Parameters that are ready without a mark: those that a static graph never uses, as soon as there is
  // another gradient, and at the end of an iteration those of which marks were only counted, and the rest.
  void take_frozen_unused() DSC_EXCLUDES(mutex);
  void take_deferred() DSC_EXCLUDES(mutex);
  void take_missing() DSC_EXCLUDES(mutex);

  // Adds the gradients of a bucket that were marked in memory of the caller's.
  void add_deliveries(size_t bucket, std::vector<Delivery>& deliveries) DSC_EXCLUDES(mutex);
  // Parameters without a gradient, of all and of a bucket that was not launched.
  std::vector<size_t> missing() DSC_EXCLUDES(mutex);
  size_t first_missing(size_t bucket) DSC_EXCLUDES(mutex);

 private:
  void become_ready(size_t index, bool used) DSC_EXCLUDES(mutex);
  bool has_sum(size_t index) DSC_EXCLUDES(mutex);

  BucketRunner& runner_;
  const std::function<void()> complete_;
  BucketSet* set_ = nullptr;  // replaced between iterations
  std::atomic<bool> local_{false};
};

}  // namespace dsc
