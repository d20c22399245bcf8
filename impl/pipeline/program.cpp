#include "pipeline/program.hpp"

#include <utility>

#include "base/hash.hpp"
#include "pipeline/catalog.hpp"
#include "pipeline/global_order.hpp"

namespace dsc {
namespace {

// Records the common order of all stages, as reported by put_in_order(), as a program. A step consists of one
// operation, or of two that overlap, and the messages before it.
class Recorder final : public OrderListener {
 public:
  explicit Recorder(const PipelinePlan& plan)
      : placement_(plan.placement),
        program_(static_cast<size_t>(plan.spec.stages)),
        in_pair_(program_.size()) {}

  void compute(int32_t stage, const Compute& op) override {
    StageProgram& self = program_[static_cast<size_t>(stage)];
    if (op.op != kIdle) self.events.push_back({op, self.steps});
    auto in_pair = in_pair_[static_cast<size_t>(stage)];
    in_pair_[static_cast<size_t>(stage)] = op.overlaps && !in_pair;
    if (!in_pair_[static_cast<size_t>(stage)]) ++self.steps;
  }
  void activation(int32_t from_part, int32_t micro_batch) override {
    add(from_part, PipeOp::kSendActivation, micro_batch);
    add(from_part + 1, PipeOp::kRecvActivation, micro_batch);
  }
  void gradient(int32_t from_part, int32_t micro_batch) override {
    add(from_part, PipeOp::kSendGrad, micro_batch);
    add(from_part - 1, PipeOp::kRecvGrad, micro_batch);
  }

  Program take() {
    // Messages after the last operation belong to the step of that operation.
    for (StageProgram& self : program_)
      for (auto it = self.events.rbegin(); it != self.events.rend() && it->step == self.steps; ++it)
        --it->step;
    return std::move(program_);
  }

 private:
  void add(int32_t part, PipeOp op, int32_t micro_batch) {
    StageProgram& self = program_[static_cast<size_t>(placement_.stage(part))];
    self.events.push_back({{op, placement_.chunk(part), micro_batch, false}, self.steps});
  }

  const Placement placement_;
  Program program_;
  std::vector<bool> in_pair_;
};

StageProgram walked(Schedule& schedule) {
  StageProgram program;
  program.steps = schedule.steps();
  Instruction it;
  while (schedule.next(it))
    if (it.op != PipeOp::kLoadMicroBatch && it.micro_batch >= 0)
      program.events.push_back({{it.op, it.chunk, it.micro_batch, false}, it.step, it.buffer});
  return program;
}

// An FNV-1a hash of numbers.
class Fingerprint {
 public:
  void add(int64_t value) {
    for (int shift = 0; shift < 64; shift += 8)
      hash_ = fnv1a(static_cast<uint8_t>(static_cast<uint64_t>(value) >> shift), hash_);
  }
  void add(const Compute& op) {
    for (const int64_t value :
         {static_cast<int64_t>(op.op), int64_t{op.chunk}, int64_t{op.micro_batch}, int64_t{op.overlaps}})
      add(value);
  }
  uint64_t get() const { return hash_; }

 private:
  uint64_t hash_ = kFnvStart;
};

}  // namespace

uint64_t fingerprint_of(const PipelinePlan& plan) {
  Fingerprint all;
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage) {
    all.add(plan.order->size(stage));
    for (int64_t k = 0; k < plan.order->size(stage); ++k) all.add(plan.order->at(stage, k));
    if (!plan.program) continue;
    for (const Event& event : (*plan.program)[static_cast<size_t>(stage)].events) all.add(event.op);
  }
  return all.get();
}

std::shared_ptr<const ComputeOrder> computes_of(const Program& program) {
  std::vector<StageOrder> stages(program.size());
  for (size_t s = 0; s < program.size(); ++s)
    for (const Event& event : program[s].events)
      if (!is_send(event.op.op) && !is_recv(event.op.op) && event.op.op != kIdle)
        stages[s].push_back(event.op);
  return std::make_shared<ListedOrder>(std::move(stages));
}

Program program_of(const PipelinePlan& plan) {
  if (plan.program) return *plan.program;
  plan.expect_order();
  if (!plan.closed_form) {
    Recorder recorder(plan);
    put_in_order(plan, recorder);
    return recorder.take();
  }
  Program program;
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage)
    program.push_back(walked(*instructions_of(plan, stage)));
  return program;
}

}  // namespace dsc
