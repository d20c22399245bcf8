// From the order in which stages compute to the instructions of one stage.
#pragma once

#include <memory>

#include "pipeline/compute_order.hpp"
#include "pipeline/ir.hpp"
#include "pipeline/placement.hpp"

namespace dsc {

// More micro-batches in all parts of the model together are refused: lowering looks at every one.
inline constexpr int64_t kMostLowered = int64_t{1} << 24;

// Adds loads, sends, receives, buffers and the end of a batch. A step is one operation of the stage, with the
// loads, sends and receives before it. Memory: the instructions of this stage, a few words per stage and
// three bits per part and micro-batch.
std::unique_ptr<Schedule> lower(ScheduleSpec spec, std::shared_ptr<const ComputeOrder> order,
                                PlacementShape shape);

}  // namespace dsc
