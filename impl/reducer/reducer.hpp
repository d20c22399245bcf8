// Reduces gradients in buckets while they are being computed: a bucket starts as soon as its last gradient
// is there and all buckets before it have started, so that every rank starts them in one order.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "comm/comm.hpp"
#include "comm/tensor.hpp"
#include "reducer/bucket_set.hpp"
#include "reducer/buffers.hpp"
#include "reducer/bucket_runner.hpp"
#include "reducer/join_gate.hpp"
#include "reducer/param_list.hpp"
#include "reducer/range_set.hpp"
#include "reducer/rebuild.hpp"
#include "reducer/report.hpp"
#include "reducer/sparse.hpp"
#include "reducer/usage.hpp"

namespace dsc {

struct ReducerOptions {
  size_t bucket_bytes = 25 * size_t{1024} * 1024;
  size_t first_bucket_bytes = size_t{1024} * 1024;
  const size_t* bucket_indices = nullptr;  // length: the last of bucket_starts
  std::span<const size_t> bucket_starts;   // empty: the buckets are planned
  int32_t average = DSC_AVERAGE_PRE;
  int32_t sync = 1;
  int32_t single_first_bucket = 0;
  int32_t find_unused = 0;
  int32_t static_graph = 0;
  int32_t rebuild = DSC_REBUILD_ONCE;
  int32_t small_bucket_first = 0;
  int32_t grad_dtype = 0;  // 0: that of each parameter
  int32_t keep_sparse_rows = 0;  // 1: sparse results are not coalesced
};

struct ClipRequest {
  double max_norm;         // infinity: gradients are only scaled
  double scale;            // of the gradients, before the norm is limited
  int32_t norm;            // dsc_norm_t
  Comm* shards;            // other parts of the same model; null: none
  std::span<const uint8_t> counted;  // by parameter: 0 if another rank of `shards` counts it; empty: all
};

class Reducer {
 public:
  // Collective. Errors in options or parameters are the same on all ranks and leave comm usable.
  static std::shared_ptr<Reducer> create(Comm& comm, std::span<const Tensor> params,
                                         const ReducerOptions& options);

  Reducer(std::shared_ptr<Comm> group, std::span<const Tensor> params, const ReducerOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Between iterations: says whether the next ones are reduced, or only add to what this rank collects.
  void set_sync(bool sync);
  // Between iterations. Null: the reducer's own all-reduce.
  void set_hook(std::shared_ptr<BucketHook> hook);
  BucketHook& hook();  // throws STATE without one
  void expect_idle() const;
  const std::shared_ptr<Comm>& group() const noexcept { return group_; }

  // Collective: sets tensors that are no parameters, such as running means, and must be equal on all ranks.
  void set_buffers(std::span<const Tensor> buffers);
  // Collective, between iterations: makes the buffers equal.
  void sync_buffers(int32_t how);

  // Between iterations: scales gradients, and those of this rank's latest iteration to a norm.
  double clip(const ClipRequest& request);

  // Under a join begin() and sync_buffers() are collective: they tell the ranks that have run out of batches,
  // which then call shadow_iteration() or shadow_buffers().
  void expect_no_join() const;
  void set_join(std::weak_ptr<JoinGate> join);
  void shadow_iteration(const Turn& turn);
  void shadow_buffers(const Turn& turn, JoinStep step);
  bool counts_marks() const;  // the next iteration counts the marks of a static graph

  // Streams belong to the device of the parameters; null means its default stream, or host memory.
  void begin(void* stream = nullptr);
  void finish(void* stream = nullptr);  // collective, unless set_sync(false) was called before begin()

  // Any thread, several at once.
  void accumulate(size_t index, const void* gradient, void* stream = nullptr);
  void mark_ready(size_t index, void* gradient, void* stream = nullptr);
  void mark_unused(size_t index);
  void mark_sparse(size_t index, std::span<const int64_t> indices, const void* values);

  // Between iterations: the rows of the latest one, valid until the next begins.
  const SparseRows& sparse_rows(size_t index) const;

  // Any thread. Waits until all finished iterations are complete; throws the failure of one, and returns
  // false if the deadline passed first.
  bool synchronize(Deadline deadline);

  // Any thread.
  void* grad_view(size_t index);
  void read_gradient(size_t index, void* gradient) const;  // host memory, between iterations
  size_t size() const noexcept { return params_.size(); }
  BucketPlan plan() const;
  std::vector<size_t> unused() const;  // in the latest iteration, on any rank
  uint64_t rebuilds() const noexcept { return rebuilder_.count(); }
  std::string report_json() const;
  std::string picture() const;  // of the latest iteration, as SVG
  std::vector<OpStats> op_stats() const { return group_->stats(); }
  int timeout_ms() const noexcept { return group_->timeout_ms(); }
  void close() noexcept;  // ends this rank's part; running reductions are revoked on all ranks

 private:
  enum class Phase : uint8_t { kIdle, kOpen, kFinishing };
  enum class Mark : uint8_t { kNone, kAccumulating, kReady };

  struct Param {
    Mark mark = Mark::kNone;
    bool accumulated = false;  // true if the view holds a sum
    void* gradient = nullptr;  // as it was marked; finish() also writes the sum there
    void* stream = nullptr;
  };

  void check_alive() const;
  void check_index(size_t index) const;
  // True if finish() returns before the reductions have ended, so that they may fail afterwards.
  bool is_on_device() const noexcept { return params_.tensors[0].device >= 0; }
  // Inside an iteration, where begin() cannot replace the buckets.
  GradientStorage& storage() const { return *set_->storage; }
  const GradientSlot& slot(size_t index) const { return set_->slots[index]; }
  std::shared_ptr<BucketSet> current_set() const;
  const std::string& label(size_t index) const { return params_.labels[index]; }

  void require_idle() const DSC_REQUIRES(mutex_);
  void expect_finished() const;
  void expect_results() const;
  double norm_of_gradients(const ClipRequest& request);
  void note_iteration();
  ReducerReport report() const DSC_REQUIRES(mutex_);
  std::optional<Turn> announce(JoinStep step);
  void begin_iteration(void* stream, int divisor);

  // marking.cpp
  void require_open() const DSC_REQUIRES(mutex_);
  void expect_unmarked(size_t index) const DSC_REQUIRES(mutex_);
  void expect_gradient(size_t index, void* gradient) DSC_REQUIRES(mutex_);
  void expect_no_sum(size_t index) const DSC_REQUIRES(mutex_);
  bool is_deferred() const DSC_REQUIRES(mutex_) { return options_.static_graph == 1 && (local_ || usage_.is_counting()); }
  bool note_mark(size_t index, void* gradient, void* stream) DSC_REQUIRES(mutex_);
  [[noreturn]] void fail_changed(size_t index, const char* what) const DSC_REQUIRES(mutex_);
  template <typename Step>
  void take(size_t index, const Step& step);
  void expect_sparse(size_t index, bool sparse) const;
  bool is_local() const noexcept { return local_.load(std::memory_order_relaxed); }
  void collect(size_t index, const void* gradient, void* stream);
  void become_ready(size_t index, bool used);
  void mark_frozen_unused();
  void mark_without_gradient(size_t index);
  void launch_ready(bool marking);

  // finish.cpp
  void stop_marking();
  void finish_local(void* stream);
  void take_deferred();
  void mark_rest_unused();
  std::vector<size_t> missing() const DSC_REQUIRES(mutex_);
  void launch_unless_revoked();
  Failure end_complete(void* stream);
  void locate_nonfinite(size_t bucket, Failure& failure) const;
  void deliver(size_t bucket, bool writes);
  size_t first_missing(size_t bucket) const;
  Failure end_incomplete(size_t launched);
  [[noreturn]] void fail_incomplete(std::span<const size_t> absent, size_t launched,
                                    const Failure& failure) const;
  void agree_after();
  void has_results(bool good);
  void end_iteration();

  const std::shared_ptr<Comm> group_;
  const ParamList params_;
  const ReducerOptions options_;  // without the caller's buckets

  mutable Mutex mutex_;
  Phase phase_ DSC_GUARDED_BY(mutex_) = Phase::kIdle;
  RangeSet ranges_ DSC_GUARDED_BY(mutex_);
  std::vector<Param> states_;                  // mutex_ guards mark, accumulated and gradient
  bool sync_ DSC_GUARDED_BY(mutex_) = true;    // of the next iteration
  std::atomic<bool> local_{false};             // this iteration is not reduced; begin() sets it
  bool carries_ DSC_GUARDED_BY(mutex_) = false;  // views hold sums of iterations that were not reduced
  bool frozen_marked_ DSC_GUARDED_BY(mutex_) = false;
  Usage usage_ DSC_GUARDED_BY(mutex_);
  std::vector<size_t> unused_ DSC_GUARDED_BY(mutex_);
  Rebuilder rebuilder_;                        // used by finish() alone, but for count()
  std::atomic<int> marking_{0};                // calls that have passed their checks
  mutable std::atomic<bool> reported_{false};  // a call has reported the group's failure

  std::shared_ptr<BucketSet> set_;       // replaced by begin() under mutex_
  std::unique_ptr<BucketSet> next_set_;  // takes its place with the next iteration
  bool pinned_ DSC_GUARDED_BY(mutex_) = false;       // the caller has views of set_
  std::vector<std::shared_ptr<BucketSet>> retired_;  // the caller may still have views of these
  BucketRunner runner_;
  std::vector<Delivery> deliveries_;  // scratch for one bucket
  SparseGradients sparse_;  // used by one thread at a time for each parameter
  int divisor_ = 1;         // of this iteration; begin() sets it
  Buffers buffers_;
  const BucketLayout first_layout_;
  uint64_t iterations_ DSC_GUARDED_BY(mutex_) = 0;  // that were reduced
  IterationTimes latest_ DSC_GUARDED_BY(mutex_);
  PhaseSampler phases_ DSC_GUARDED_BY(mutex_);
  std::weak_ptr<JoinGate> join_ DSC_GUARDED_BY(mutex_);
  bool has_results_ DSC_GUARDED_BY(mutex_) = false;  // the latest iteration ended well
  bool closed_ DSC_GUARDED_BY(mutex_) = false;
};

}  // namespace dsc
