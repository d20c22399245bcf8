// The lowering that PyTorch uses. A message is sent right after the operation that produces it, and the
// receiving stage receives it as its next action.
#include <array>
#include <vector>

#include "pipeline/global_order.hpp"
#include "pipeline/progress.hpp"

namespace dsc {
namespace {

// Visits the stages in turn. A visited stage runs its next operation if the input is available. The resulting
// order of the operations and messages of all stages is reported to a listener.
class Round {
 public:
  Round(const PipelinePlan& plan, OrderListener& listener)
      : order_(*plan.order),
        placement_(plan.placement),
        listener_(listener),
        progress_(plan),
        positions_(static_cast<size_t>(placement_.stages())) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int32_t stage = 0; stage < placement_.stages(); ++stage)
        if (!at_end(stage) && advance(stage)) moved = true;
    }
    expect_all_done();
    for (int32_t stage = 0; stage < placement_.stages(); ++stage) progress_.expect_complete(stage);
  }

 private:
  int64_t& position(int32_t stage) { return positions_[static_cast<size_t>(stage)]; }
  bool at_end(int32_t stage) { return position(stage) == order_.size(stage); }

  // Returns the stage that has not yet produced the input of `op`; -1 if the input is available. `op` is the
  // next operation of `stage`, at position k of its order.
  int32_t waits_for(int32_t stage, int64_t k, const Compute& op) {
    progress_.check(stage, k, op);
    const Source from = source_of(placement_, placement_.part(stage, op.chunk), op.op);
    if (from.part == Source::kNone || progress_.has(from, op.micro_batch)) return -1;
    return placement_.stage(from.part);
  }

  // Runs the next operation of a stage, or the next two if they overlap. Returns false if the stage has to
  // wait for an input.
  bool advance(int32_t stage) {
    for (; !at_end(stage) && order_.at(stage, position(stage)).op == kIdle; ++position(stage))
      listener_.compute(stage, {});
    if (at_end(stage)) return true;
    const int64_t k = position(stage);
    const Compute first = order_.at(stage, k);
    const bool is_pair = first.overlaps && k + 1 < order_.size(stage);
    const Compute second = is_pair ? order_.at(stage, k + 1) : Compute{};
    progress_.check_pair(stage, k, first, is_pair ? &second : nullptr);
    if (waits_for(stage, k, first) >= 0 || (is_pair && waits_for(stage, k + 1, second) >= 0)) return false;
    listener_.compute(stage, first);
    if (is_pair) listener_.compute(stage, second);
    finish(stage, first);
    if (is_pair) finish(stage, second);
    position(stage) += is_pair ? 2 : 1;
    return true;
  }

  void finish(int32_t stage, const Compute& op) {
    progress_.note(stage, op);
    const int32_t part = placement_.part(stage, op.chunk);
    if (op.op == PipeOp::kForward && placement_.has_output(part) && placement_.stage(part + 1) != stage)
      listener_.activation(part, op.micro_batch);
    if (runs_input_half(op.op) && placement_.has_input(part) && placement_.stage(part - 1) != stage)
      listener_.gradient(part, op.micro_batch);
  }

  void expect_all_done() {
    std::vector<Stuck> stuck;
    for (int32_t stage = 0; stage < placement_.stages(); ++stage) {
      if (at_end(stage)) continue;
      int64_t k = position(stage);
      Compute op = order_.at(stage, k);
      // If the first of two overlapping operations has its input, the stage waits for the input of the second
      // one.
      if (waits_for(stage, k, op) < 0) op = order_.at(stage, ++k);
      stuck.push_back({stage, k, op, waits_for(stage, k, op)});
    }
    if (!stuck.empty()) refuse_stuck(stuck);
  }

  const ComputeOrder& order_;
  const Placement placement_;
  OrderListener& listener_;
  Progress progress_;
  std::vector<int64_t> positions_;
};

}  // namespace

void put_at_once(const PipelinePlan& plan, OrderListener& listener) { Round(plan, listener).run(); }

}  // namespace dsc
