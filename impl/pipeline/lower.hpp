// From the order in which stages compute to the instructions of one stage.
#pragma once

#include <memory>

#include "pipeline/plan.hpp"

namespace dsc {

// Adds loads, sends, receives, buffers and the end of a batch for the stage that spec names. A step is one
// operation of the stage, or two that run at once, with the loads, sends and receives before it. Memory: the
// instructions of this stage, a few words per stage and three bits per part and micro-batch.
std::unique_ptr<Schedule> lower(const PipelinePlan& plan, int32_t stage);

}  // namespace dsc
