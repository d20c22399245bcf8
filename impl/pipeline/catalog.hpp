// The named schedules, and plans from custom orders.
#pragma once

#include <memory>

#include "pipeline/ir.hpp"
#include "pipeline/plan.hpp"

namespace dsc {

// If the spec's chunks are 0, the schedule's default is used. Throws INVALID_ARG for an unknown name or an
// invalid number, OVERFLOW for a schedule that is too large.
std::shared_ptr<const PipelinePlan> make_plan(ScheduleSpec spec);

// make_custom() makes a schedule from the given order of each stage. complete_custom() fills in and checks
// the numbers of the spec beforehand, so that numbers that are too large are rejected early. Both throw
// INVALID_ARG; make_custom() also throws it for orders that cannot be run.
void complete_custom(ScheduleSpec& spec);
std::shared_ptr<const PipelinePlan> make_custom(ScheduleSpec spec, std::vector<StageOrder> orders,
                                                PlacementShape shape);

// Returns the same schedule with a different rule for messages, or with the halves of backward passes merged.
// Throws INVALID_ARG for a schedule that defines the positions of its messages, because both options would
// change them.
std::shared_ptr<const PipelinePlan> changed(const PipelinePlan& plan, bool merge_backward,
                                            PipeMessages messages);

// Returns the instructions of one stage. Throws INVALID_ARG if the stage does not exist, OVERFLOW if the
// schedule is too large to be lowered.
std::unique_ptr<Schedule> instructions_of(const PipelinePlan& plan, int32_t stage);

// Makes the plan, and returns the instructions of the stage that the spec names.
std::unique_ptr<Schedule> make_schedule(ScheduleSpec spec);

}  // namespace dsc
