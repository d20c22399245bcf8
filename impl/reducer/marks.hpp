// Which parameters have their gradients in an iteration, and which marks are refused.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reducer/bucket_set.hpp"
#include "reducer/param_list.hpp"
#include "reducer/range_set.hpp"
#include "reducer/usage.hpp"

namespace dsc {

// One thread at a time: the reducer's lock is held around every call.
class Marks {
 public:
  Marks(const ParamList& params, bool static_graph);

  // --- Iterations. The require functions throw STATE.
  void require_idle() const;
  void require_open() const;
  void expect_finished(int rank) const;  // names the parameters that miss a gradient
  bool is_idle() const noexcept { return phase_ == Phase::kIdle; }
  bool is_open() const noexcept { return phase_ == Phase::kOpen; }
  bool is_finishing() const noexcept { return phase_ == Phase::kFinishing; }

  // A local iteration is not reduced: its gradients are added to those of the next one.
  void open(bool local);
  void close();   // no further marks
  void reopen();  // because finish() could not go on
  void end();

  // True if gradients are taken at the end of the iteration only, because nobody knows yet which mark of a
  // static graph is the last one.
  bool is_deferred() const noexcept { return static_graph_ && (local_ || usage_.is_counting()); }
  bool carries() const noexcept { return carries_; }  // views hold sums of local iterations
  void forget_sums() noexcept { carries_ = false; }

  // --- Marks. They throw for a parameter that cannot be marked.
  void begin_sum(size_t index);  // a gradient is being added to what is collected
  void end_sum(size_t index);
  bool has_sum(size_t index) const { return params_[index].accumulated; }
  // Returns true if the parameter's gradient is to be taken now.
  bool mark(const BucketSet& set, size_t index, void* gradient, void* stream);
  // Returns true if the parameter is to be taken without a gradient now.
  bool mark_unused(size_t index);
  void take_back(size_t index);  // a mark
  void cancel_sum(size_t index);
  void note_collected(size_t index);  // in a local iteration

  void* gradient(size_t index) const { return params_[index].gradient; }
  void* stream(size_t index) const { return params_[index].stream; }
  bool is_ready(size_t index) const { return params_[index].state == State::kReady; }

  // --- Parameters that become ready without a mark. They count as marked from then on.
  struct Deferred {
    std::vector<size_t> marked;
    std::vector<size_t> unmarked;
  };
  Deferred take_deferred();
  std::vector<size_t> take_frozen_unused();  // of a static graph, once in an iteration
  std::vector<size_t> take_missing();
  std::vector<size_t> missing() const;
  size_t first_missing(std::span<const size_t> indices) const;

  Usage& usage() noexcept { return usage_; }
  const Usage& usage() const noexcept { return usage_; }

 private:
  enum class Phase : uint8_t { kIdle, kOpen, kFinishing };
  enum class State : uint8_t { kNone, kAccumulating, kReady };

  struct Param {
    State state = State::kNone;
    bool accumulated = false;  // true if the view holds a sum
    void* gradient = nullptr;  // as it was marked; finish() also writes the result there
    void* stream = nullptr;
  };

  void expect_unmarked(size_t index) const;
  void expect_gradient(const BucketSet& set, size_t index, void* gradient);
  [[noreturn]] void fail_changed(size_t index, const char* what) const;
  const char* label(size_t index) const { return list_.labels[index].c_str(); }

  const ParamList& list_;
  const bool static_graph_;
  Phase phase_ = Phase::kIdle;
  bool local_ = false;
  bool carries_ = false;
  bool frozen_taken_ = false;
  std::vector<Param> params_;
  RangeSet ranges_;
  Usage usage_;
};

}  // namespace dsc
