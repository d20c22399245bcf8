#include "pipeline/lower.hpp"

#include <vector>

#include "base/error.hpp"
#include "pipeline/stage_list.hpp"

namespace dsc {
namespace {

class LoweredSchedule final : public Schedule {
 public:
  LoweredSchedule(ScheduleSpec spec, std::shared_ptr<const ComputeOrder> order, StageList&& list)
      : Schedule(std::move(spec)), order_(std::move(order)), buffers_(list.buffers()), list_(list.take()) {}

  bool next(Instruction& instruction) override {
    if (position_ == list_.size()) return false;
    instruction = list_[position_++];
    return true;
  }
  void reset() override { position_ = 0; }

  int64_t steps() const override { return order_->size(spec().stage); }
  StepView step(int64_t step) const override {
    const Compute op = order_->at(spec().stage, step);
    return {op.micro_batch, op.op == PipeOp::kForward};
  }
  int32_t buffers() const override { return buffers_; }

 private:
  const std::shared_ptr<const ComputeOrder> order_;
  const int32_t buffers_;
  const std::vector<Instruction> list_;
  size_t position_ = 0;
};

void check_size(const ScheduleSpec& spec) {
  int64_t parts = int64_t{spec.stages} * spec.chunks;
  if (parts > kMostLowered || parts * spec.micro_batches > kMostLowered)
    fail(DSC_ERR_OVERFLOW, "%d stages x %d chunks x %d micro-batches, expected a product of at most %lld",
         spec.stages, spec.chunks, spec.micro_batches, static_cast<long long>(kMostLowered));
}

}  // namespace

std::unique_ptr<Schedule> lower(ScheduleSpec spec, std::shared_ptr<const ComputeOrder> order,
                                PlacementShape shape) {
  check_size(spec);
  const Placement placement(spec.stages, spec.chunks, shape);
  StageList list(placement, spec.stage, spec.micro_batches, order->size(spec.stage));
  put_in_order(*order, placement, spec.micro_batches, list);
  list.close();
  return std::make_unique<LoweredSchedule>(std::move(spec), std::move(order), std::move(list));
}

}  // namespace dsc
