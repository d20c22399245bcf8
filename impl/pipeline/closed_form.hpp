// DeepSpeed's three schedules: what a step holds follows from its number, so nothing is stored.
#pragma once

#include <memory>

#include "pipeline/ir.hpp"

namespace dsc {

// Forward and backward passes in turn on a common clock of 2 (micro_batches + stages - 1) steps.
std::unique_ptr<Schedule> deepspeed_train(ScheduleSpec spec);

// Forward passes only, on a clock of micro_batches + stages - 1 steps, with two buffers.
std::unique_ptr<Schedule> deepspeed_inference(ScheduleSpec spec);

// Every stage holds the whole model; a step is one micro-batch.
std::unique_ptr<Schedule> data_parallel(ScheduleSpec spec);

}  // namespace dsc
