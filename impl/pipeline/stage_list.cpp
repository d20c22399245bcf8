#include "pipeline/stage_list.hpp"

#include <algorithm>

namespace dsc {

StageList::StageList(const Placement& placement, int32_t stage, int32_t micro_batches, int64_t computes)
    : placement_(placement),
      stage_(stage),
      micro_batches_(micro_batches),
      computes_(computes),
      places_(static_cast<size_t>(placement.chunks()) * static_cast<size_t>(micro_batches)) {
  list_.reserve(static_cast<size_t>(computes) * 3 +
                3);  // a receive and a send for each, and the end of the batch
}

StageList::Place& StageList::place(int32_t chunk, int32_t micro_batch) {
  return places_[static_cast<size_t>(chunk) * static_cast<size_t>(micro_batches_) +
                 static_cast<size_t>(micro_batch)];
}

bool StageList::holds(int32_t part) const {
  return part >= 0 && part < placement_.parts() && placement_.stage(part) == stage_;
}

int64_t StageList::step() const { return std::min(n_computed_, computes_ - 1); }

void StageList::add(PipeOp op, int32_t chunk, int32_t micro_batch, int32_t peer) {
  list_.push_back({step(), op, micro_batch, chunk, place(chunk, micro_batch).buffer, peer});
}

// Its backward pass needs a buffer, and so does whoever takes the gradient of its input.
void StageList::occupy(int32_t part, int32_t micro_batch) {
  if (free_.empty()) free_.push_back(n_buffers_++);
  place(placement_.chunk(part), micro_batch) = {free_.back(), part == 0 ? 1 : 2};
  free_.pop_back();
}

void StageList::release(int32_t part, int32_t micro_batch) {
  const Place& used = place(placement_.chunk(part), micro_batch);
  if (--place(placement_.chunk(part), micro_batch).users == 0) free_.push_back(used.buffer);
}

void StageList::activation(int32_t from_part, int32_t micro_batch) {
  const int32_t to_part = from_part + 1;
  const int32_t from = placement_.stage(from_part);
  const int32_t to = placement_.stage(to_part);
  if (from == stage_) add(PipeOp::kSendActivation, placement_.chunk(from_part), micro_batch, to);
  if (to != stage_) return;
  occupy(to_part, micro_batch);
  add(PipeOp::kRecvActivation, placement_.chunk(to_part), micro_batch, from);
}

void StageList::gradient(int32_t from_part, int32_t micro_batch) {
  const int32_t to_part = from_part - 1;
  const int32_t from = placement_.stage(from_part);
  const int32_t to = placement_.stage(to_part);
  if (to == stage_) add(PipeOp::kRecvGrad, placement_.chunk(to_part), micro_batch, from);
  if (from != stage_) return;
  add(PipeOp::kSendGrad, placement_.chunk(from_part), micro_batch, to);
  release(from_part, micro_batch);
}

void StageList::compute(int32_t stage, const Compute& op) {
  if (stage != stage_) return;
  const int32_t part = placement_.part(stage, op.chunk);
  if (op.op == PipeOp::kForward)
    forward(part, op);
  else
    backward(part, op);
  ++n_computed_;
}

void StageList::forward(int32_t part, const Compute& op) {
  if (part == 0 || holds(part - 1)) occupy(part, op.micro_batch);  // nothing was received
  if (part == 0 || part == placement_.parts() - 1) add(PipeOp::kLoadMicroBatch, op.chunk, op.micro_batch);
  add(PipeOp::kForward, op.chunk, op.micro_batch);
}

void StageList::backward(int32_t part, const Compute& op) {
  add(op.op, op.chunk, op.micro_batch);
  if (op.op != PipeOp::kBackwardInput) release(part, op.micro_batch);
  if (op.op != PipeOp::kBackwardWeight && holds(part + 1)) release(part + 1, op.micro_batch);
}

void StageList::close() {
  for (const PipeOp op : {PipeOp::kReduceTiedGrads, PipeOp::kReduceGrads, PipeOp::kOptimizerStep})
    list_.push_back({.step = step(), .op = op});
}

}  // namespace dsc
