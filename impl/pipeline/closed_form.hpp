// DeepSpeed's three schedules in closed form: the instructions of a step are computed from its number. No
// list of instructions is stored.
#pragma once

#include <memory>

#include "pipeline/ir.hpp"

namespace dsc {

// Alternates forward and backward passes. All stages share a clock of 2 (micro_batches + stages - 1) steps.
std::unique_ptr<Schedule> deepspeed_train(ScheduleSpec spec);

// Runs only forward passes, on a clock of micro_batches + stages - 1 steps, with two buffers.
std::unique_ptr<Schedule> deepspeed_inference(ScheduleSpec spec);

// Every stage holds the whole model; a step is one micro-batch.
std::unique_ptr<Schedule> data_parallel(ScheduleSpec spec);

}  // namespace dsc
