#include "pipeline/lower.hpp"

#include <vector>

#include "pipeline/stage_list.hpp"

namespace dsc {
namespace {

// Iterates over a stored list of instructions.
class LoweredSchedule final : public Schedule {
 public:
  LoweredSchedule(ScheduleSpec spec, StageList&& list)
      : Schedule(std::move(spec)), buffers_(list.buffers()), steps_(list.take_steps()), list_(list.take()) {}

  bool next(Instruction& instruction) override {
    if (position_ == list_.size()) return false;
    instruction = list_[position_++];
    return true;
  }
  void reset() override { position_ = 0; }

  int64_t steps() const override { return static_cast<int64_t>(steps_.size()); }
  StepView step(int64_t step) const override { return steps_[static_cast<size_t>(step)]; }
  int32_t buffers() const override { return buffers_; }

 private:
  const int32_t buffers_;
  const std::vector<StepView> steps_;
  const std::vector<Instruction> list_;
  size_t position_ = 0;
};

}  // namespace

std::unique_ptr<Schedule> lower(const PipelinePlan& plan, int32_t stage) {
  plan.expect_order();
  StageList list(plan, stage);
  put_in_order(plan, list);
  list.close();
  ScheduleSpec spec = plan.spec;
  spec.stage = stage;
  return std::make_unique<LoweredSchedule>(std::move(spec), std::move(list));
}

}  // namespace dsc
