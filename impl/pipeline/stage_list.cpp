#include "pipeline/stage_list.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace dsc {

StageList::StageList(const PipelinePlan& plan, int32_t stage)
    : placement_(plan.placement),
      stage_(stage),
      micro_batches_(plan.spec.micro_batches),
      forward_only_(plan.spec.forward_only),
      given_(plan.program ? &(*plan.program)[static_cast<size_t>(stage)] : nullptr),
      slots_(static_cast<size_t>(placement_.chunks()) * static_cast<size_t>(micro_batches_)) {
  const auto computes = static_cast<size_t>(plan.order->size(stage));
  // Reserve memory for a receive and a send per operation, and for the instructions that end the batch.
  list_.reserve(computes * 3 + 3);
  steps_.reserve(computes);
  if (given_) check_given();
}

// Throws unless the program names the buffers of all operations of the stage, or of none of them.
void StageList::check_given() const {
  const auto is_given = [](const Event& event) { return event.op.op == kIdle || event.buffer >= 0; };
  const auto is_open = [](const Event& event) { return event.op.op == kIdle || event.buffer < 0; };
  if (!std::ranges::all_of(given_->events, is_given) && !std::ranges::all_of(given_->events, is_open))
    fail(
        DSC_ERR_INVALID_ARG,
        "stage %d: some operations have a buffer and others have none, expected a buffer for all or for none",
        stage_);
}

StageList::Slot& StageList::slot(int32_t chunk, int32_t micro_batch) {
  return slots_[static_cast<size_t>(chunk) * static_cast<size_t>(micro_batches_) +
                static_cast<size_t>(micro_batch)];
}

// `part` precedes or follows a part of this stage. Returns whether `part` is also on this stage and the two
// parts exchange data.
bool StageList::holds(int32_t part) const {
  const bool is_part = part >= 0 && part < placement_.parts() && placement_.shape() != PlacementShape::kApart;
  return is_part && placement_.stage(part) == stage_;
}

void StageList::add(PipeOp op, int32_t chunk, int32_t micro_batch, int32_t peer) {
  const int32_t held = slot(chunk, micro_batch).buffer;
  if (given_buffer_ >= 0 && given_buffer_ != held)
    fail(DSC_ERR_INVALID_ARG,
         "stage %d: step %lld, %s of micro-batch %d has buffer %d, expected buffer %d, which holds this "
         "micro-batch",
         stage_, static_cast<long long>(step_), pipe_op_name(op), micro_batch, given_buffer_, held);
  list_.push_back({step_, op, micro_batch, chunk, slot(chunk, micro_batch).buffer, peer});
}

// Assigns a buffer to a micro-batch. Three users may need it: the backward pass, the receiver of the gradient
// of its input, and the next part if that is on this stage and reads the output. Without backward passes
// there is one user: the one that takes the output.
void StageList::occupy(int32_t part, int32_t micro_batch) {
  int32_t buffer = given_buffer_;
  if (buffer >= 0) {
    take_given(buffer, micro_batch);
    n_buffers_ = std::max(n_buffers_, buffer + 1);
  } else {
    if (free_.empty()) free_.push_back(n_buffers_++);
    buffer = free_.back();
    free_.pop_back();
  }
  const int32_t users =
      forward_only_ ? 1 : 1 + (placement_.has_input(part) ? 1 : 0) + (holds(part + 1) ? 1 : 0);
  slot(placement_.chunk(part), micro_batch) = {buffer, users};
}

void StageList::take_given(int32_t buffer, int32_t micro_batch) {
  const auto at = static_cast<size_t>(buffer);
  if (at >= slots_.size())
    fail(DSC_ERR_INVALID_ARG, "stage %d: step %lld, buffer is %d, expected 0 to %zu", stage_,
         static_cast<long long>(step_), buffer, slots_.size() - 1);
  if (at >= in_use_.size()) in_use_.resize(at + 1);
  if (in_use_[at]) {
    const auto holds_it = [&](const Slot& other) { return other.users > 0 && other.buffer == buffer; };
    const auto held = std::ranges::find_if(slots_, holds_it) - slots_.begin();
    fail(DSC_ERR_INVALID_ARG,
         "stage %d: step %lld, micro-batch %d is put into buffer %d, which still holds micro-batch %lld",
         stage_, static_cast<long long>(step_), micro_batch, buffer,
         static_cast<long long>(held % micro_batches_));
  }
  in_use_[at] = true;
}

void StageList::release(int32_t part, int32_t micro_batch) {
  const Slot& used = slot(placement_.chunk(part), micro_batch);
  if (--slot(placement_.chunk(part), micro_batch).users > 0) return;
  if (static_cast<size_t>(used.buffer) < in_use_.size())
    in_use_[static_cast<size_t>(used.buffer)] = false;
  else
    free_.push_back(used.buffer);
}

void StageList::activation(int32_t from_part, int32_t micro_batch) {
  const int32_t to_part = from_part + 1;
  const int32_t from = placement_.stage(from_part);
  const int32_t to = placement_.stage(to_part);
  if (from == stage_ || to == stage_) take_next_event();
  if (from == stage_) {
    add(PipeOp::kSendActivation, placement_.chunk(from_part), micro_batch, to);
    if (forward_only_) release(from_part, micro_batch);
  }
  if (to != stage_) return;
  occupy(to_part, micro_batch);
  add(PipeOp::kRecvActivation, placement_.chunk(to_part), micro_batch, from);
}

void StageList::gradient(int32_t from_part, int32_t micro_batch) {
  const int32_t to_part = from_part - 1;
  const int32_t from = placement_.stage(from_part);
  const int32_t to = placement_.stage(to_part);
  if (from == stage_ || to == stage_) take_next_event();
  if (to == stage_) add(PipeOp::kRecvGrad, placement_.chunk(to_part), micro_batch, from);
  if (from != stage_) return;
  add(PipeOp::kSendGrad, placement_.chunk(from_part), micro_batch, to);
  release(from_part, micro_batch);
}

void StageList::compute(int32_t stage, const Compute& op) {
  if (stage != stage_) return;
  take_next_event();
  if (!in_pair_) begin_step(op);
  if (op.op == PipeOp::kForward)
    forward(placement_.part(stage, op.chunk), op);
  else if (op.op != kIdle)
    backward(placement_.part(stage, op.chunk), op);
  in_pair_ = op.overlaps && !in_pair_;
  if (!in_pair_ && !given_) ++step_;
}

// Takes step and buffer of the next event from the program, if the plan has a program.
void StageList::take_next_event() {
  if (!given_) return;
  const Event& event = given_->events[position_++];
  step_ = event.step;
  given_buffer_ = event.buffer;
}

void StageList::begin_step(const Compute& op) {
  steps_.resize(static_cast<size_t>(step_) + 1, {-1, true});
  if (steps_.back().micro_batch < 0) steps_.back() = {op.micro_batch, op.op == PipeOp::kForward};
  if (op.overlaps) list_.push_back({.step = step_, .op = PipeOp::kOverlap});
}

void StageList::forward(int32_t part, const Compute& op) {
  const bool is_first = !placement_.has_input(part);
  const bool is_last = !placement_.has_output(part);
  // Nothing was received for this pass, so it has no buffer yet.
  if (is_first || holds(part - 1)) occupy(part, op.micro_batch);
  if (is_first || is_last) add(PipeOp::kLoadMicroBatch, op.chunk, op.micro_batch);
  add(PipeOp::kForward, op.chunk, op.micro_batch);
  if (!forward_only_) return;
  if (!is_first && holds(part - 1)) release(part - 1, op.micro_batch);
  if (is_last) release(part, op.micro_batch);
}

void StageList::backward(int32_t part, const Compute& op) {
  add(op.op, op.chunk, op.micro_batch);
  if (!runs_weight_half(op.op)) return;
  release(part, op.micro_batch);
  for (const int32_t used : {part + 1, part - 1})
    if (holds(used)) release(used, op.micro_batch);
}

// Adds the end of the batch. Messages after the last operation belong to the step of that operation.
void StageList::close() {
  if (given_) steps_.resize(static_cast<size_t>(given_->steps), {-1, true});
  const int64_t last = static_cast<int64_t>(steps_.size()) - 1;
  for (auto it = list_.rbegin(); it != list_.rend() && it->step > last; ++it) it->step = last;
  if (forward_only_) return;
  // If every stage holds a whole model, no stage shares weights with another one.
  const bool is_apart = placement_.shape() == PlacementShape::kApart;
  for (const PipeOp op : {PipeOp::kReduceTiedGrads, PipeOp::kReduceGrads, PipeOp::kOptimizerStep})
    if (op != PipeOp::kReduceTiedGrads || !is_apart) list_.push_back({.step = last, .op = op});
}

}  // namespace dsc
