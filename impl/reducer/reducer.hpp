// Reduces gradients in buckets while other gradients are still being computed. A bucket starts as soon as its
// last gradient is ready and all earlier buckets have started. Therefore all ranks start buckets in the same
// order.
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
#include "gradients/intake.hpp"
#include "gradients/param_list.hpp"
#include "reducer/bucket_intake.hpp"
#include "reducer/bucket_runner.hpp"
#include "reducer/bucket_sets.hpp"
#include "reducer/buffers.hpp"
#include "reducer/clip.hpp"
#include "reducer/join_gate.hpp"
#include "reducer/report.hpp"
#include "reducer/sparse.hpp"

namespace dsc {

struct ReducerOptions {
  size_t bucket_bytes = 25 * size_t{1024} * 1024;
  size_t first_bucket_bytes = size_t{1024} * 1024;
  const size_t* bucket_indices = nullptr;  // as many entries as the last entry of bucket_starts
  std::span<const size_t> bucket_starts;   // if empty, the buckets are planned
  int32_t average = DSC_AVERAGE_PRE;
  int32_t sync = 1;
  int32_t single_first_bucket = 0;
  int32_t find_unused = 0;
  int32_t static_graph = 0;
  int32_t rebuild = DSC_REBUILD_ONCE;
  int32_t small_bucket_first = 0;
  int32_t grad_dtype = 0;        // 0 means the type of each parameter
  int32_t keep_sparse_rows = 0;  // 1 means that sparse results are not coalesced
};

class Reducer {
 public:
  // Collective. Errors in options or parameters are the same on all ranks, and `comm` stays usable.
  static std::shared_ptr<Reducer> create(Comm& comm, std::span<const Tensor> params,
                                         const ReducerOptions& options);

  Reducer(std::shared_ptr<Comm> group, std::span<const Tensor> params, const ReducerOptions& options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Must be called between iterations. If `sync` is false, the next iterations are not reduced; they only add
  // to the sums of this rank.
  void set_sync(bool sync);
  // Must be called between iterations. With null, the reducer uses its own all-reduce.
  void set_hook(std::shared_ptr<BucketHook> hook);
  BucketHook& hook();  // throws STATE if there is no hook
  void expect_idle() const;
  const std::shared_ptr<Comm>& group() const noexcept { return group_; }

  // Must be called between iterations. Clips the gradients of this rank's latest iteration to a norm, and
  // returns the norm.
  double clip(const ClipRequest& request);

  // Functions for a join. Under a join, begin() and sync_buffers() are collective: they announce the next
  // step to the ranks that have run out of batches, which then take part in it. Nothing is announced without
  // a join, or for an iteration that is not reduced.
  void expect_no_join() const;
  void set_join(std::weak_ptr<JoinGate> join);
  std::optional<JoinParticipants> announce(JoinStep step);
  void shadow_iteration(const JoinParticipants& participants);
  bool counts_marks() const;  // true if the next iteration counts the marks for a static graph

  Buffers buffers;  // the buffers that sync_buffers() makes equal

  // Streams must belong to the device of the parameters. A null stream means the device's default stream, or
  // host memory.
  void begin(void* stream = nullptr);
  void finish(void* stream = nullptr);  // collective, unless set_sync(false) was called before begin()

  // May be called from several threads simultaneously.
  void accumulate(size_t index, const void* gradient, void* stream = nullptr);
  void mark_ready(size_t index, void* gradient, void* stream = nullptr);
  void mark_unused(size_t index);
  void mark_sparse(size_t index, std::span<const int64_t> indices, const void* values);

  // Must be called between iterations. Returns the rows of the latest iteration, valid until the next one
  // begins.
  const SparseRows& sparse_rows(size_t index) const;

  // May be called from any thread. Waits until all finished iterations are complete. Throws if one has
  // failed, and returns false if the deadline passed first.
  bool synchronize(Deadline deadline);

  // May be called from any thread, except for read_gradient().
  void* grad_view(size_t index);
  void read_gradient(size_t index, void* gradient) const;  // only between iterations, for host memory
  size_t size() const noexcept { return params_.size(); }
  int32_t average() const noexcept { return options_.average; }
  // Returns true if the iteration is reduced at its end, and false if it only adds to the sums of this rank.
  bool reduces() const noexcept { return !gradients_.is_local(); }
  void refuse_inside_hook() const { runner_.refuse_inside_hook(); }
  void load_hook(std::span<const std::byte> state);
  BucketPlan plan() const;
  std::vector<size_t> unused() const;  // parameters that no rank used in the latest iteration
  uint64_t rebuilds() const noexcept { return sets_.rebuilds(); }
  std::string report_json() const;
  std::string picture() const;  // draws the latest iteration as SVG
  void close() noexcept;        // does not free memory; running reductions are revoked on all ranks
  bool is_closed() const noexcept { return closed_.load(); }

 private:
  void abort() noexcept;  // revokes the group and interrupts the operations of a hook
  void check_alive() const;
  void check_index(size_t index) const;
  // Returns true for parameters on a device. finish() then returns before the reductions have ended, and they
  // may fail afterwards.
  bool is_on_device() const noexcept { return params_.tensors[0].device >= 0; }
  // May be called only inside an iteration, because begin() may replace the buckets.
  BucketSet& set() const { return intake_.set(); }
  GradientStorage& storage() const { return *set().storage; }
  const GradientSlot& slot(size_t index) const { return set().slots[index]; }
  std::shared_ptr<BucketSet> current_set() const;
  const std::string& label(size_t index) const { return params_.labels[index]; }
  void require_idle() const DSC_REQUIRES(gradients_.mutex);
  void await_replaced_buckets() const;
  void use_current_buckets() DSC_REQUIRES(gradients_.mutex);
  void begin_iteration(void* stream, int divisor, bool shadows);
  ReducerReport report(const BucketLayout& layout) const DSC_REQUIRES(gradients_.mutex);

  // marking.cpp
  void launch_ready(bool marking);

  // finish.cpp
  void launch_unless_revoked();
  void agree_after();
  void end_iteration(bool good);

  const std::shared_ptr<Comm> group_;
  const ParamList params_;
  const ReducerOptions options_;               // does not contain the caller's lists of buckets
  mutable std::atomic<bool> reported_{false};  // true if a call has reported the group's failure

  BucketSets sets_;  // begin() may replace the current set, while it holds the lock
  BucketRunner runner_;
  SparseGradients sparse_;    // only one thread at a time may use it for each parameter
  GradientIntake gradients_;  // contains the lock
  BucketIntake intake_;
  int divisor_ = 1;                                    // divisor of this iteration; begin() sets it
  bool sync_ DSC_GUARDED_BY(gradients_.mutex) = true;  // whether the next iteration is reduced
  std::weak_ptr<JoinGate> join_ DSC_GUARDED_BY(gradients_.mutex);

  std::vector<size_t> unused_ DSC_GUARDED_BY(gradients_.mutex);
  bool has_results_ DSC_GUARDED_BY(gradients_.mutex) = false;  // true if the latest iteration succeeded
  uint64_t iterations_ DSC_GUARDED_BY(gradients_.mutex) = 0;   // number of iterations that were reduced
  PhaseSampler phases_ DSC_GUARDED_BY(gradients_.mutex);
  std::atomic<bool> closed_{false};
};

// Collective, must be called between iterations. Makes the buffers equal on all ranks; `how` is a
// dsc_buffer_sync_t.
void sync_buffers(Reducer& reducer, int32_t how);
// The counterpart of sync_buffers() on a rank that has run out of batches.
void shadow_buffers(Reducer& reducer, const JoinParticipants& participants, JoinStep step);

}  // namespace dsc
