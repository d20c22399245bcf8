// The object behind the handle of a schedule. It holds the plan. For a schedule of one stage, it also holds
// the stage's instructions and the object that runs them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "pipeline/catalog.hpp"
#include "pipeline_run/runner.hpp"

namespace dsc {

class PipeSchedule {
 public:
  static constexpr int32_t kAllStages = -1;

  PipeSchedule(std::shared_ptr<const PipelinePlan> plan, int32_t stage)
      : plan_(std::move(plan)), stage_(stage) {
    if (stage == kAllStages) return;
    instructions_ = instructions_of(*plan_, stage);
    runner_.emplace(*instructions_, *plan_);
  }

  const std::shared_ptr<const PipelinePlan>& plan() const noexcept { return plan_; }
  int32_t stage() const noexcept { return stage_; }

  Schedule& instructions() {
    expect_stage();
    return *instructions_;
  }
  PipeRunner& runner() {
    expect_stage();
    return *runner_;
  }

  // True during a call, to detect a second thread: only one thread at a time may use the schedule.
  std::atomic<bool> in_call{false};

 private:
  void expect_stage() const {
    if (!instructions_)
      fail(DSC_ERR_STATE, "the schedule is of the whole pipeline, expected one of a stage: see at_stage");
  }

  const std::shared_ptr<const PipelinePlan> plan_;
  const int32_t stage_;
  std::unique_ptr<Schedule> instructions_;
  std::optional<PipeRunner> runner_;
};

}  // namespace dsc
