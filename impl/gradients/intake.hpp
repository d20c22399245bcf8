// The state that the threads which provide the gradients of an iteration share: which gradients are ready,
// and how many calls still move memory. They move memory outside the lock.
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "base/guard.hpp"
#include "base/mutex.hpp"
#include "comm/comm.hpp"
#include "gradients/marking_count.hpp"
#include "gradients/marks.hpp"

namespace dsc {

class GradientIntake {
 public:
  GradientIntake(const ParamList& params, bool static_graph, const char* calls = "dsc_bucket_reducer")
      : marks_(params, static_graph, calls) {}
  GradientIntake(const GradientIntake&) = delete;
  GradientIntake& operator=(const GradientIntake&) = delete;

  // Guards the marks, and what the owner changes between iterations.
  mutable Mutex mutex;
  const Marks& marks() const DSC_REQUIRES(mutex) { return marks_; }

  // --- Iterations.
  // The memory in which gradients belong; see Marks.
  void set_buckets(std::span<const std::byte> buckets) DSC_REQUIRES(mutex) { marks_.set_buckets(buckets); }
  void begin(bool local) DSC_REQUIRES(mutex);
  // Whether the iteration is local: it is not reduced, and only adds to the sums that this rank collects.
  bool is_local() const noexcept { return local_.load(std::memory_order_relaxed); }
  void forget_sums() DSC_REQUIRES(mutex) { marks_.forget_sums(); }
  // Refuses further marks and waits for those that are running. Throws STATE if no iteration is open, and
  // TIMEOUT if a mark does not end within the time-out of the group. Then marks are accepted again.
  void stop(const Comm& group) DSC_EXCLUDES(mutex);
  void end_usage() DSC_REQUIRES(mutex) { marks_.end_usage(); }
  void end() DSC_REQUIRES(mutex) { marks_.end(); }

  // Throws STATE inside an iteration, and names the parameters without a gradient.
  void expect_finished(int rank) const DSC_EXCLUDES(mutex);
  bool is_idle() const DSC_EXCLUDES(mutex);
  bool is_open() const DSC_EXCLUDES(mutex);
  bool is_finishing() const DSC_EXCLUDES(mutex);
  bool has_sum(size_t index) const DSC_EXCLUDES(mutex);
  // Parameters without a gradient.
  std::vector<size_t> missing() const DSC_EXCLUDES(mutex);
  // Returns the first of these parameters that has no gradient.
  size_t first_missing(std::span<const size_t> indices) const DSC_EXCLUDES(mutex);

  // --- Marks. A mark that is accepted is counted until its MarkScope ends.
  MarkScope scope() noexcept { return MarkScope(marking_); }

  // Returns whether the gradient is complete.
  bool accept(size_t index, const MarkedGradient& gradient) DSC_REQUIRES(mutex);
  // What must be taken together with a complete gradient. It is determined under the lock under which the
  // mark was accepted, so that a mark does not lock again.
  struct Complete {
    bool has_sum;
    bool has_frozen;  // take_frozen_unused() has parameters to return
  };
  Complete complete(size_t index) const DSC_REQUIRES(mutex) {
    return {marks_.has_sum(index), marks_.has_frozen()};
  }
  // Returns whether the parameter already has a sum, to which the gradient is added.
  bool accept_sum(size_t index, const void* gradient, size_t bytes) DSC_REQUIRES(mutex);
  // Returns whether the parameter is to be taken without a gradient now; only then is it counted.
  bool accept_unused(size_t index) DSC_REQUIRES(mutex);
  void note_collected(size_t index) DSC_EXCLUDES(mutex);

  // Runs a step that moves the gradient of a mark that was accepted. If the step throws, the mark is undone.
  template <typename Step>
  void run(size_t index, const Step& step) DSC_EXCLUDES(mutex) {
    capture(step, [&](const Error& error) {
      take_back(index);
      throw Error(error);
    });
  }
  // The same for a gradient that is only added to the collected sums; afterwards the parameter has a sum.
  template <typename Step>
  void add(size_t index, const Step& step) DSC_EXCLUDES(mutex) {
    capture(step, [&](const Error& error) {
      cancel_sum(index);
      throw Error(error);
    });
    end_sum(index);
  }

  // --- Parameters that become ready without a mark; see Marks.
  std::vector<size_t> take_frozen_unused() DSC_EXCLUDES(mutex);
  std::vector<size_t> take_missing(std::span<const size_t> order = {}) DSC_EXCLUDES(mutex);
  struct Deferred {
    struct Marked {
      size_t index;
      MarkedGradient gradient;
      bool has_sum;
    };
    std::vector<Marked> marked;
    std::vector<size_t> unmarked;
  };
  Deferred take_deferred() DSC_EXCLUDES(mutex);

 private:
  void take_back(size_t index) DSC_EXCLUDES(mutex);
  void end_sum(size_t index) DSC_EXCLUDES(mutex);
  void cancel_sum(size_t index) DSC_EXCLUDES(mutex);

  Marks marks_ DSC_GUARDED_BY(mutex);
  MarkingCount marking_;
  std::atomic<bool> local_{false};
};

}  // namespace dsc
