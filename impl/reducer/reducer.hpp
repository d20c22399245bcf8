// Reduces gradients in buckets while they are being computed: a bucket starts as soon as its last gradient
// is there and all buckets before it have started, so that every rank starts them in one order.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "comm/comm.hpp"
#include "comm/tensor.hpp"
#include "reducer/bucket_layout.hpp"
#include "reducer/range_set.hpp"
#include "reducer/storage.hpp"

namespace dsc {

struct ReducerOptions {
  size_t bucket_bytes = 25 * size_t{1024} * 1024;
  size_t first_bucket_bytes = size_t{1024} * 1024;
  const size_t* bucket_indices = nullptr;  // length: the last of bucket_starts
  std::span<const size_t> bucket_starts;   // empty: the buckets are planned
  int32_t average = DSC_AVERAGE_PRE;
  int32_t sync = 1;
  int32_t single_first_bucket = 0;
};

class Reducer {
 public:
  // Collective. Errors in options or parameters are the same on all ranks and leave comm usable.
  static std::shared_ptr<Reducer> create(Comm& comm, std::span<const Tensor> params,
                                         const ReducerOptions& options);

  Reducer(std::shared_ptr<Comm> group, std::span<const Tensor> params, BucketLayout layout, int32_t average,
          std::unique_ptr<GradientStorage> storage);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Streams belong to the device of the parameters; null means its default stream, or host memory.
  void begin(void* stream = nullptr);
  void finish(void* stream = nullptr);  // collective

  // Any thread, several at once.
  void accumulate(size_t index, const void* gradient, void* stream = nullptr);
  void mark_ready(size_t index, void* gradient, void* stream = nullptr);
  void mark_unused(size_t index);

  // Any thread. Waits until all finished iterations are complete; throws the failure of one, and returns
  // false if the deadline passed first.
  bool synchronize(Deadline deadline);

  // Any thread.
  void* grad_view(size_t index) const;
  const BucketPlan& plan() const noexcept { return layout_.plan; }
  std::vector<OpStats> stats() const { return group_->stats(); }
  int timeout_ms() const noexcept { return group_->timeout_ms(); }
  void close() noexcept;  // ends this rank's part; running reductions are revoked on all ranks

 private:
  enum class Phase : uint8_t { kIdle, kOpen, kFinishing };
  enum class Mark : uint8_t { kNone, kAccumulating, kReady };

  struct Param {
    GradientSlot slot;
    Mark mark = Mark::kNone;
    bool accumulated = false;  // true if the view holds a sum
    void* result = nullptr;    // finish() also writes the sum here
  };
  struct Bucket {
    Call call;
    size_t params = 0;
    std::atomic<size_t> pending{0};
    std::shared_ptr<Work> work;  // the operation of this iteration
  };

  void prepare_params(std::span<const Tensor> params);
  void prepare_buckets();
  void check_alive() const;
  void check_index(size_t index) const;

  // marking.cpp
  void require_open() const DSC_REQUIRES(mutex_);
  void expect_unmarked(size_t index) const DSC_REQUIRES(mutex_);
  void check_overlap(const Param& param, size_t index, const void* gradient) DSC_REQUIRES(mutex_);
  template <typename Step>
  void take(Param& param, const Step& step);
  void become_ready(const Param& param);
  void launch_ready(bool marking);
  void launch_unless_revoked();

  // finish.cpp
  void stop_marking();
  size_t launched() DSC_EXCLUDES(launch_mutex_);
  std::vector<size_t> missing() const DSC_REQUIRES(mutex_);
  std::string name_list(std::span<const size_t> indices) const;
  Failure end_complete(void* stream);
  void locate_nonfinite(size_t bucket, Failure& failure) const;
  void deliver(size_t bucket, bool writes);
  size_t first_missing(size_t bucket) const;
  Failure end_incomplete(size_t launched);
  [[noreturn]] void fail_incomplete(std::span<const size_t> absent, size_t launched,
                                    const Failure& failure) const;
  void end_iteration();

  const std::shared_ptr<Comm> group_;
  const BucketLayout layout_;
  const int32_t average_;
  const std::vector<std::string> labels_;  // names of the parameters for messages
  const std::unique_ptr<GradientStorage> storage_;

  mutable Mutex mutex_;
  Phase phase_ DSC_GUARDED_BY(mutex_) = Phase::kIdle;
  RangeSet ranges_ DSC_GUARDED_BY(mutex_);
  std::vector<Param> params_;                  // mutex_ guards mark, accumulated and result
  std::atomic<int> marking_{0};                // calls that have passed their checks
  mutable std::atomic<bool> reported_{false};  // a call has reported the group's failure

  Mutex launch_mutex_;
  std::vector<Bucket> buckets_;       // launch_mutex_ guards work
  std::vector<Delivery> deliveries_;  // scratch for one bucket
  size_t launched_ DSC_GUARDED_BY(launch_mutex_) = 0;
  std::atomic<bool> launching_{false};  // a thread is inside the group's start()
  bool closed_ DSC_GUARDED_BY(launch_mutex_) = false;
};

}  // namespace dsc
