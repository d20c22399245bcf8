#include "pipeline/progress.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace dsc {
namespace {

[[noreturn]] void refuse(int32_t stage, int64_t k, const Compute& op, const std::string& reason) {
  fail(DSC_ERR_INVALID_ARG, "stage %d: operation %lld, %s, %s", stage, static_cast<long long>(k),
       describe(op).c_str(), reason.c_str());
}

}  // namespace

std::string describe(const Compute& op) {
  return std::string(pipe_op_name(op.op)) + " of micro-batch " + std::to_string(op.micro_batch) +
         " in chunk " + std::to_string(op.chunk);
}

Progress::Progress(const PipelinePlan& plan)
    : placement_(plan.placement),
      micro_batches_(plan.spec.micro_batches),
      forward_only_(plan.spec.forward_only),
      work_(static_cast<size_t>(placement_.stages())) {
  const size_t all = static_cast<size_t>(placement_.parts()) * static_cast<size_t>(micro_batches_);
  forward_.resize(all);
  if (forward_only_) return;
  input_half_.resize(all);
  weight_half_.resize(all);
}

std::string Progress::problem(int32_t stage, const Compute& op) const {
  const bool is_forward = op.op == PipeOp::kForward;
  if (!is_forward && !runs_input_half(op.op) && !runs_weight_half(op.op))
    return "is no pass, expected forward, backward, backward_input or backward_weight";
  if (op.chunk < 0 || op.chunk >= placement_.chunks())
    return "is of a chunk that does not exist, expected 0 to " + std::to_string(placement_.chunks() - 1);
  if (op.micro_batch < 0 || op.micro_batch >= micro_batches_)
    return "is of a micro-batch that does not exist, expected 0 to " + std::to_string(micro_batches_ - 1);
  if (forward_only_ && !is_forward) return "is a backward pass, expected forward passes only";
  const int32_t part = placement_.part(stage, op.chunk);
  const size_t at = index(part, op.micro_batch);
  if ((is_forward && forward_[at]) || (runs_input_half(op.op) && input_half_[at]) ||
      (runs_weight_half(op.op) && weight_half_[at]))
    return "occurs a second time";
  if (!is_forward && !forward_[at]) return "comes before its forward pass";
  if (op.op == PipeOp::kBackwardWeight && !input_half_[at]) return "comes before its backward_input";
  const Source source = source_of(placement_, part, op.op);
  if (source.part != Source::kNone && placement_.stage(source.part) == stage && !has(source, op.micro_batch))
    return "comes before another chunk of this stage has computed its input";
  return {};
}

void Progress::check(int32_t stage, int64_t k, const Compute& op) const {
  if (const std::string reason = problem(stage, op); !reason.empty()) refuse(stage, k, op, reason);
}

void Progress::check_pair(int32_t stage, int64_t k, const Compute& first, const Compute* second) const {
  if (!first.overlaps) return;
  const auto is_backward = [](const Compute& op) {
    return runs_input_half(op.op) || runs_weight_half(op.op);
  };
  const bool fits = second && !second->overlaps &&
                    ((first.op == PipeOp::kForward && is_backward(*second)) ||
                     (is_backward(first) && second->op == PipeOp::kForward));
  if (!fits)
    refuse(stage, k, first,
           "overlaps the next operation: expected a pair of one forward and one backward pass");
}

void Progress::note(int32_t stage, const Compute& op) {
  const size_t at = index(placement_.part(stage, op.chunk), op.micro_batch);
  if (op.op == PipeOp::kForward) forward_[at] = true;
  if (runs_input_half(op.op)) input_half_[at] = true;
  if (runs_weight_half(op.op)) weight_half_[at] = true;
  work_[static_cast<size_t>(stage)] += op.op == PipeOp::kBackward ? 2 : 1;
}

// check() has rejected duplicates, so the amount of work shows whether every operation was done.
void Progress::expect_complete(int32_t stage) const {
  const int64_t passes = int64_t{placement_.chunks()} * micro_batches_;
  if (work_[static_cast<size_t>(stage)] == (forward_only_ ? 1 : 3) * passes) return;
  const auto& last = forward_only_ ? forward_ : weight_half_;
  int32_t chunk = 0;
  int32_t m = 0;
  while (last[index(placement_.part(stage, chunk), m)])
    if (++m == micro_batches_) m = 0, ++chunk;
  const size_t at = index(placement_.part(stage, chunk), m);
  const PipeOp op = !forward_[at]      ? PipeOp::kForward
                    : !input_half_[at] ? PipeOp::kBackward
                                       : PipeOp::kBackwardWeight;
  fail(DSC_ERR_INVALID_ARG, "stage %d: there is no %s of micro-batch %d in chunk %d, expected one", stage,
       pipe_op_name(op), m, chunk);
}

void refuse_stuck(const std::vector<Stuck>& stuck) {
  const auto of = [&](int32_t stage) { return std::ranges::find(stuck, stage, &Stuck::stage); };
  const Stuck& first = stuck.front();
  std::string reason =
      "can never run: stage " + std::to_string(first.waits_for) + " never computes its input";
  // Follow the stages that wait for each other, until a stage occurs a second time or is not stuck. A stage
  // that occurs twice is part of a cycle.
  std::vector<bool> met(stuck.size());
  auto at = stuck.begin();
  for (; at != stuck.end() && !met[static_cast<size_t>(at - stuck.begin())]; at = of(at->waits_for))
    met[static_cast<size_t>(at - stuck.begin())] = true;
  if (at == stuck.end()) refuse(first.stage, first.k, first.op, reason);
  reason += "; these stages wait for each other:";
  const int32_t start = at->stage;
  do {
    reason += (at->stage == start ? " stage " : ", stage ") + std::to_string(at->stage) + " at operation " +
              std::to_string(at->k) + " (" + describe(at->op) + ") for stage " +
              std::to_string(at->waits_for);
    at = of(at->waits_for);
  } while (at->stage != start);
  refuse(first.stage, first.k, first.op, reason);
}

}  // namespace dsc
