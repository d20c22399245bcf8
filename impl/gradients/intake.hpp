// The state that the threads of an iteration share: which gradients are ready, and how many calls are still
// copying memory. Threads copy memory without holding the lock.
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

  // Guards the marks, and the data that the owner of this object changes between iterations.
  mutable Mutex mutex;
  const Marks& marks() const DSC_REQUIRES(mutex) { return marks_; }

  // --- Iterations.

  // set_buckets() sets the memory of the buckets; class Marks describes it.
  void set_buckets(std::span<const std::byte> buckets) DSC_REQUIRES(mutex) { marks_.set_buckets(buckets); }
  void begin(bool local) DSC_REQUIRES(mutex);
  // Returns true if the iteration is local: it is not reduced, and only adds to the sums of this rank.
  bool is_local() const noexcept { return local_.load(std::memory_order_relaxed); }
  void forget_sums() DSC_REQUIRES(mutex) { marks_.forget_sums(); }
  // Rejects new marks and waits for those that are still running. Throws STATE if no iteration is open.
  // Throws TIMEOUT if a mark does not end within the time-out of the group; marks are then accepted again.
  void stop(const Comm& group) DSC_EXCLUDES(mutex);
  void end_usage() DSC_REQUIRES(mutex) { marks_.end_usage(); }
  void end() DSC_REQUIRES(mutex) { marks_.end(); }

  // Throws STATE inside an iteration. The message names the parameters without a gradient.
  void expect_finished(int rank) const DSC_EXCLUDES(mutex);
  bool is_idle() const DSC_EXCLUDES(mutex);
  bool is_open() const DSC_EXCLUDES(mutex);
  bool is_finishing() const DSC_EXCLUDES(mutex);
  bool has_sum(size_t index) const DSC_EXCLUDES(mutex);
  // Returns the parameters without a gradient.
  std::vector<size_t> missing() const DSC_EXCLUDES(mutex);
  // Returns the first parameter in `indices` that has no gradient.
  size_t first_missing(std::span<const size_t> indices) const DSC_EXCLUDES(mutex);

  // --- Marks. An accepted mark is counted until its MarkScope ends.
  MarkScope scope() noexcept { return MarkScope(marking_); }

  // Accepts a mark. Returns true if the gradient is complete.
  bool accept(size_t index, const MarkedGradient& gradient) DSC_REQUIRES(mutex);
  // Describes what to do with a complete gradient. It is determined while the mark is accepted, so that the
  // lock is taken only once.
  struct Complete {
    bool has_sum;
    bool has_frozen;  // take_frozen_unused() may return parameters
  };
  Complete complete(size_t index) const DSC_REQUIRES(mutex) {
    return {marks_.has_sum(index), marks_.has_frozen()};
  }
  // Accepts a gradient that is added to a sum. Returns true if the parameter already has a sum.
  bool accept_sum(size_t index, const void* gradient, size_t bytes) DSC_REQUIRES(mutex);
  // Accepts the mark of an unused parameter. Returns true if the caller has to take the parameter without a
  // gradient now. The call counts as running only in that case.
  bool accept_unused(size_t index) DSC_REQUIRES(mutex);
  void note_collected(size_t index) DSC_EXCLUDES(mutex);

  // Runs a step that copies the gradient of an accepted mark. If the step throws, the mark is undone.
  template <typename Step>
  void run(size_t index, const Step& step) DSC_EXCLUDES(mutex) {
    capture(step, [&](const Error& error) {
      take_back(index);
      throw Error(error);
    });
  }
  // Runs a step that adds a gradient to the sum of its parameter. If the step succeeds, the parameter has a
  // sum.
  template <typename Step>
  void add(size_t index, const Step& step) DSC_EXCLUDES(mutex) {
    capture(step, [&](const Error& error) {
      cancel_sum(index);
      throw Error(error);
    });
    end_sum(index);
  }

  // --- Parameters that become ready without a mark; class Marks describes these functions.
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
