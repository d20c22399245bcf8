// Tracks which parameters have their gradients in an iteration, and rejects invalid marks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradients/param_list.hpp"
#include "gradients/range_set.hpp"
#include "gradients/usage.hpp"

namespace dsc {

// A gradient in user-provided memory.
struct MarkedGradient {
  void* data = nullptr;  // null if the gradient is already in its bucket, or was copied
  size_t bytes = 0;
  void* stream = nullptr;
};

// Only one thread at a time may use an object; GradientIntake ensures that with a lock.
class Marks {
 public:
  // `calls` is the prefix of the public functions in messages: "dsc_sharded" gives dsc_sharded_begin().
  Marks(const ParamList& params, bool static_graph, const char* calls);

  // Must be called between iterations. Sets the memory of all buckets. A marked gradient in this memory is
  // rejected unless it is at the address of its own parameter's gradient.
  void set_buckets(std::span<const std::byte> buckets) noexcept { buckets_ = buckets; }

  // --- Iterations. require_idle(), require_open() and expect_finished() throw STATE.
  void require_idle() const;
  void require_open() const;
  void expect_finished(int rank) const;  // the message names parameters without a gradient
  bool is_idle() const noexcept { return phase_ == Phase::kIdle; }
  bool is_open() const noexcept { return phase_ == Phase::kOpen; }
  bool is_finishing() const noexcept { return phase_ == Phase::kFinishing; }

  // Opens an iteration. A local iteration is not reduced, and its gradients are added to those of the next
  // one.
  void open(bool local);
  void close();   // no more marks are accepted
  void reopen();  // accepts marks again after finish() could not continue
  void end();

  // Returns true if gradients are taken only at the end of the iteration. This is the case for a static graph
  // as long as it is not known which mark of a parameter is its last one.
  bool is_deferred() const noexcept { return static_graph_ && (local_ || usage_.is_counting()); }
  bool carries() const noexcept { return carries_; }  // true if views hold sums of local iterations
  void forget_sums() noexcept { carries_ = false; }

  // --- Marks. These functions throw if a parameter must not be marked.

  // begin_sum() announces that a gradient is about to be added to a parameter's sum.
  void begin_sum(size_t index, const void* gradient, size_t bytes);
  void end_sum(size_t index);
  void cancel_sum(size_t index);
  bool has_sum(size_t index) const { return params_[index].accumulated; }
  // Returns true if the caller has to take the parameter's gradient now.
  bool mark(size_t index, const MarkedGradient& gradient);
  // Returns true if the caller has to take the parameter without a gradient now.
  bool mark_unused(size_t index);
  void take_back(size_t index);       // undoes a mark
  void note_collected(size_t index);  // the parameter now has a sum; for local iterations

  const MarkedGradient& gradient(size_t index) const { return params_[index].gradient; }
  bool is_ready(size_t index) const { return params_[index].state == State::kReady; }
  // Returns true if the parameter has neither a mark nor a sum in this iteration.
  bool is_untouched(size_t index) const {
    return params_[index].state == State::kNone && !params_[index].accumulated;
  }

  // --- Parameters that become ready without a mark. From then on they count as marked.
  struct Deferred {
    std::vector<size_t> marked;
    std::vector<size_t> unmarked;
  };
  Deferred take_deferred();
  // Returns true if take_frozen_unused() may return parameters and was not called in this iteration.
  bool has_frozen() const noexcept {
    return static_graph_ && !usage_.is_counting() && !local_ && !frozen_taken_;
  }
  std::vector<size_t> take_frozen_unused();  // for static graphs, once per iteration
  // Marks all parameters that are not ready yet and returns them. They are in the given order, or in index
  // order if `order` is empty.
  std::vector<size_t> take_missing(std::span<const size_t> order = {});
  std::vector<size_t> missing() const;
  size_t first_missing(std::span<const size_t> indices) const;

  void end_usage() { usage_.end(); }
  const Usage& usage() const noexcept { return usage_; }

 private:
  enum class Phase : uint8_t { kIdle, kOpen, kFinishing };
  enum class State : uint8_t { kNone, kAccumulating, kReady };

  struct Param {
    State state = State::kNone;
    bool accumulated = false;  // true if the view holds a sum
    MarkedGradient gradient;   // finish() also writes the result to this memory
  };

  void expect_unmarked(size_t index) const;
  void expect_gradient(size_t index, const MarkedGradient& gradient);
  void become_ready(size_t index, bool used);
  [[noreturn]] void fail_changed(size_t index, const char* what) const;
  const char* label(size_t index) const { return list_.labels[index].c_str(); }

  const ParamList& list_;
  const bool static_graph_;
  const char* const calls_;
  std::span<const std::byte> buckets_;
  Phase phase_ = Phase::kIdle;
  bool local_ = false;
  bool carries_ = false;
  bool frozen_taken_ = false;
  std::vector<Param> params_;
  RangeSet ranges_;
  Usage usage_;
};

}  // namespace dsc
