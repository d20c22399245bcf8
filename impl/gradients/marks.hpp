// Tracks which parameters have their gradients in an iteration, and refuses wrong marks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradients/param_list.hpp"
#include "gradients/range_set.hpp"
#include "gradients/usage.hpp"

namespace dsc {

// A gradient in memory of the caller.
struct MarkedGradient {
  void* data = nullptr;  // null: the gradient is already in its bucket, or was copied
  size_t bytes = 0;
  void* stream = nullptr;
};

// One thread at a time; see GradientIntake.
class Marks {
 public:
  // Messages name functions of the caller, such as <calls>_begin().
  Marks(const ParamList& params, bool static_graph, const char* calls);

  // Between iterations: sets the memory in which gradients belong. A gradient at another address in that
  // memory is refused.
  void set_buckets(std::span<const std::byte> buckets) noexcept { buckets_ = buckets; }

  // --- Iterations. The require functions throw STATE.
  void require_idle() const;
  void require_open() const;
  void expect_finished(int rank) const;  // names the parameters without a gradient
  bool is_idle() const noexcept { return phase_ == Phase::kIdle; }
  bool is_open() const noexcept { return phase_ == Phase::kOpen; }
  bool is_finishing() const noexcept { return phase_ == Phase::kFinishing; }

  // A local iteration is not reduced: its gradients are added to those of the next one.
  void open(bool local);
  void close();   // no further marks
  void reopen();  // because finish() could not continue
  void end();

  // True if gradients are taken only at the end of the iteration, because it is not known yet which mark of a
  // static graph is the last one.
  bool is_deferred() const noexcept { return static_graph_ && (local_ || usage_.is_counting()); }
  bool carries() const noexcept { return carries_; }  // views hold sums of local iterations
  void forget_sums() noexcept { carries_ = false; }

  // --- Marks. They throw for a parameter that cannot be marked.
  // A gradient is about to be added to the collected sums.
  void begin_sum(size_t index, const void* gradient, size_t bytes);
  void end_sum(size_t index);
  void cancel_sum(size_t index);
  bool has_sum(size_t index) const { return params_[index].accumulated; }
  // Returns true if the parameter's gradient is to be taken now.
  bool mark(size_t index, const MarkedGradient& gradient);
  // Returns true if the parameter is to be taken without a gradient now.
  bool mark_unused(size_t index);
  void take_back(size_t index);       // undoes a mark
  void note_collected(size_t index);  // in a local iteration

  const MarkedGradient& gradient(size_t index) const { return params_[index].gradient; }
  bool is_ready(size_t index) const { return params_[index].state == State::kReady; }
  // Returns whether the parameter has neither a mark nor a sum in this iteration.
  bool is_untouched(size_t index) const {
    return params_[index].state == State::kNone && !params_[index].accumulated;
  }

  // --- Parameters that become ready without a mark. They count as marked from then on.
  struct Deferred {
    std::vector<size_t> marked;
    std::vector<size_t> unmarked;
  };
  Deferred take_deferred();
  // Whether take_frozen_unused() was not called in this iteration and may return parameters.
  bool has_frozen() const noexcept {
    return static_graph_ && !usage_.is_counting() && !local_ && !frozen_taken_;
  }
  std::vector<size_t> take_frozen_unused();  // of a static graph, once in an iteration
  // Marks the parameters that are not ready yet and returns them, in the given order or, if that is empty, by
  // index.
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
    MarkedGradient gradient;   // finish() also writes the result there
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
