// Lowering: from the orders of all stages to the instructions of one stage.
#pragma once

#include <memory>

#include "pipeline/plan.hpp"

namespace dsc {

// Adds loads, sends, receives, buffers and the end of a batch for a stage. A step is one operation of the
// stage, or two that overlap, with the loads, sends and receives before it. It takes memory for the
// instructions of this stage, a few words per stage, and three bits per part and micro-batch.
std::unique_ptr<Schedule> lower(const PipelinePlan& plan, int32_t stage);

}  // namespace dsc
