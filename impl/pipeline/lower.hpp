// Lowering derives the instructions of one stage from the orders of all stages.
#pragma once

#include <memory>

#include "pipeline/plan.hpp"

namespace dsc {

// Adds loads, sends, receives, buffers and the end of the batch to the operations of a stage. A step consists
// of one operation, or of two that overlap, and the loads, sends and receives before it. The function takes
// memory for the instructions of this stage, a few words per stage, and three bits per part and micro-batch.
std::unique_ptr<Schedule> lower(const PipelinePlan& plan, int32_t stage);

}  // namespace dsc
