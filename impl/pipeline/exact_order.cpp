// Branch and bound over all orders. Operations are added in the order of their start times. Each combination
// of orders of all stages is therefore visited only once.
#include <algorithm>
#include <limits>

#include "pipeline/best_plan.hpp"

namespace dsc {
namespace {

constexpr int64_t kMostSearched = 36;
constexpr int64_t kMostNodes = 3'000'000;

// All operations of one kind on one part of the model, and the micro-batch that comes next. Micro-batches are
// interchangeable, so they run in ascending order.
struct PassSequence {
  PipeOp op{};
  int32_t part = 0;
  int32_t next = 0;
};

// A depth-first search. Each step adds an operation to the current order, and is undone before the next one
// is tried.
class OrderSearch {
 public:
  OrderSearch(const PipelinePlan& shape, const PipelineCosts& costs, const PipelineLimits& limits,
              double known)
      : costs_(costs),
        limits_(limits),
        placement_(shape.placement),
        micro_batches_(shape.spec.micro_batches),
        best_(known),
        free_(static_cast<size_t>(placement_.stages())),
        left_(free_.size()),
        held_(free_.size()),
        bytes_(free_.size()),
        orders_(free_.size()) {
    const size_t all = static_cast<size_t>(placement_.parts()) * static_cast<size_t>(micro_batches_);
    forward_end_.assign(all, kNever);
    input_end_.assign(all, kNever);
    for (int32_t part = 0; part < placement_.parts(); ++part) {
      const auto stage = static_cast<size_t>(placement_.stage(part));
      bytes_[stage] += of_part(costs_.static_bytes, part);
      sequences_.push_back({PipeOp::kForward, part});
      if (!shape.spec.forward_only) {
        sequences_.push_back({PipeOp::kBackwardInput, part});
        sequences_.push_back({PipeOp::kBackwardWeight, part});
      }
    }
    for (const PassSequence& sequence : sequences_)
      left_[static_cast<size_t>(placement_.stage(sequence.part))] += time_of(sequence) * micro_batches_;
    holds_ = !shape.spec.forward_only;
  }

  ExactSearch run() {
    if (static_cast<int64_t>(sequences_.size()) * micro_batches_ > kMostSearched) return {};
    descend(0, static_cast<int64_t>(sequences_.size()) * micro_batches_);
    ExactSearch result;
    result.is_complete = nodes_ <= kMostNodes;
    if (!best_orders_.empty()) result.order = std::make_shared<ListedOrder>(best_orders_);
    return result;
  }

 private:
  size_t index(int32_t part, int32_t m) const {
    return static_cast<size_t>(part) * static_cast<size_t>(micro_batches_) + static_cast<size_t>(m);
  }
  double time_of(const PassSequence& sequence) const {
    return of_part(sequence.op == PipeOp::kForward         ? costs_.forward
                   : sequence.op == PipeOp::kBackwardInput ? costs_.backward_input
                                                           : costs_.backward_weight,
                   sequence.part);
  }
  double way(int32_t from, int32_t to) const {
    if (placement_.stage(from) == placement_.stage(to)) return 0;
    const double bytes = of_part(costs_.message_bytes, std::min(from, to));
    return costs_.latency + (costs_.bytes_per_time > 0 ? bytes / costs_.bytes_per_time : 0);
  }

  double ready(const PassSequence& sequence) const {
    const int32_t m = sequence.next;
    if (sequence.op == PipeOp::kForward)
      return placement_.has_input(sequence.part)
                 ? forward_end_[index(sequence.part - 1, m)] + way(sequence.part - 1, sequence.part)
                 : 0;
    if (sequence.op == PipeOp::kBackwardWeight) return input_end_[index(sequence.part, m)];
    const double own = forward_end_[index(sequence.part, m)];
    if (!placement_.has_output(sequence.part)) return own;
    return std::max(own, input_end_[index(sequence.part + 1, m)] + way(sequence.part + 1, sequence.part));
  }

  bool has_room(const PassSequence& sequence) const {
    if (sequence.op != PipeOp::kForward || !holds_) return true;
    const auto stage = static_cast<size_t>(placement_.stage(sequence.part));
    if (limits_.activations > 0 && held_[stage] + 1 > limits_.activations) return false;
    return limits_.bytes <= 0 ||
           bytes_[stage] + of_part(costs_.activation_bytes, sequence.part) <= limits_.bytes;
  }

  double bound() const {
    double least = 0;
    for (size_t stage = 0; stage < free_.size(); ++stage)
      least = std::max(least, free_[stage] + left_[stage]);
    return least;
  }

  // Tries every operation that can extend the order. Gives up if the lower bound shows that the makespan
  // cannot be better than the best one found.
  void descend(double not_before, int64_t left) {
    if (++nodes_ > kMostNodes || bound() >= best_) return;
    if (left == 0) {
      best_ = *std::max_element(free_.begin(), free_.end());
      best_orders_ = orders_;
      return;
    }
    for (size_t i = 0; i < sequences_.size(); ++i) {
      PassSequence& sequence = sequences_[i];
      if (sequence.next == micro_batches_ || !has_room(sequence)) continue;
      const auto stage = static_cast<size_t>(placement_.stage(sequence.part));
      const double start = std::max(free_[stage], ready(sequence));
      if (start == kNever || start < not_before) continue;
      try_next(sequence, stage, start, left);
    }
  }

  // Adds one operation, continues the search, and then restores the previous state.
  void try_next(PassSequence& sequence, size_t stage, double start, int64_t left) {
    const double was_free = free_[stage];
    const double time = time_of(sequence);
    const size_t at = index(sequence.part, sequence.next);
    orders_[stage].push_back({sequence.op, placement_.chunk(sequence.part), sequence.next, false});
    free_[stage] = start + time;
    left_[stage] -= time;
    if (sequence.op == PipeOp::kForward) forward_end_[at] = free_[stage];
    if (sequence.op == PipeOp::kBackwardInput) input_end_[at] = free_[stage];
    hold(sequence, stage, 1);
    ++sequence.next;
    descend(start, left - 1);
    --sequence.next;
    hold(sequence, stage, -1);
    if (sequence.op == PipeOp::kForward) forward_end_[at] = kNever;
    if (sequence.op == PipeOp::kBackwardInput) input_end_[at] = kNever;
    left_[stage] += time;
    free_[stage] = was_free;
    orders_[stage].pop_back();
  }

  void hold(const PassSequence& sequence, size_t stage, int64_t direction) {
    const int64_t change = !holds_                                  ? 0
                           : sequence.op == PipeOp::kForward        ? 1
                           : sequence.op == PipeOp::kBackwardWeight ? -1
                                                                    : 0;
    held_[stage] += direction * change;
    bytes_[stage] +=
        static_cast<double>(direction * change) * of_part(costs_.activation_bytes, sequence.part);
  }

  const PipelineCosts& costs_;
  const PipelineLimits limits_;
  const Placement placement_;
  const int32_t micro_batches_;
  double best_;
  bool holds_ = true;
  // For each stage: the time at which it can compute next, and the computing time of its remaining
  // operations.
  std::vector<double> free_, left_;
  std::vector<int64_t> held_;
  std::vector<double> bytes_;
  std::vector<PassSequence> sequences_;
  std::vector<double> forward_end_, input_end_;
  std::vector<StageOrder> orders_, best_orders_;
  int64_t nodes_ = 0;
};

}  // namespace

ExactSearch exact_order(const PipelinePlan& shape, const PipelineCosts& costs, const PipelineLimits& limits,
                        double known) {
  return OrderSearch(shape, costs, limits, known).run();
}

}  // namespace dsc
