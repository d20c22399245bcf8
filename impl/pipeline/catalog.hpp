// The named schedules, and plans from custom orders.
#pragma once

#include <memory>

#include "pipeline/ir.hpp"
#include "pipeline/plan.hpp"

namespace dsc {

// Chunks of 0 become the schedule's default. Throws INVALID_ARG for an unknown name or invalid number,
// OVERFLOW for a schedule that is too large.
std::shared_ptr<const PipelinePlan> make_plan(ScheduleSpec spec);

// make_custom() makes a schedule from the order of each stage. complete_custom() checks and completes the
// numbers first, so that excessive numbers are rejected early. Throws INVALID_ARG, also for orders that
// cannot be run.
void complete_custom(ScheduleSpec& spec);
std::shared_ptr<const PipelinePlan> make_custom(ScheduleSpec spec, std::vector<StageOrder> orders,
                                                PlacementShape shape);

// Returns the same schedule with a different rule for messages, or with the halves of backward passes merged.
// Throws INVALID_ARG for a schedule that defines the positions of its messages, which these options would
// change.
std::shared_ptr<const PipelinePlan> changed(const PipelinePlan& plan, bool merge_backward,
                                            PipeMessages messages);

// Returns the instructions of one stage. Throws INVALID_ARG if the stage does not exist, OVERFLOW if the
// schedule is too large to be lowered.
std::unique_ptr<Schedule> instructions_of(const PipelinePlan& plan, int32_t stage);

// Does both, for the stage in the spec.
std::unique_ptr<Schedule> make_schedule(ScheduleSpec spec);

}  // namespace dsc
