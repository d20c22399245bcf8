// Schedules by name.
#pragma once

#include <memory>

#include "pipeline/ir.hpp"
#include "pipeline/plan.hpp"

namespace dsc {

// Chunks that are 0 become what the schedule is made for. Throws INVALID_ARG for a name or number that is
// wrong, OVERFLOW for a schedule that is too large to be written down.
std::shared_ptr<const PipelinePlan> make_plan(ScheduleSpec spec);

// A schedule from the order of each stage. First the numbers are checked and completed, so that nobody looks
// at more stages than there can be. Throws INVALID_ARG, also for orders that can not be run.
void complete_custom(ScheduleSpec& spec);
std::shared_ptr<const PipelinePlan> make_custom(ScheduleSpec spec, std::vector<StageOrder> orders,
                                                PlacementShape shape);

// The same with other places for messages, or with halves of backward passes merged. Throws INVALID_ARG where
// the schedule has places of its own for its messages, which these would change.
std::shared_ptr<const PipelinePlan> changed(const PipelinePlan& plan, bool merge_backward,
                                            PipeMessages messages);

// The instructions of one stage. Throws INVALID_ARG for a stage that there is not, OVERFLOW for a schedule
// too large to be lowered.
std::unique_ptr<Schedule> instructions_of(const PipelinePlan& plan, int32_t stage);

// Both, for the stage that spec names.
std::unique_ptr<Schedule> make_schedule(ScheduleSpec spec);

}  // namespace dsc
