// Helpers for calls on a schedule, and the conversion of its instructions to the C API.
#pragma once

#include "dsc/pipe.h"
#include "exclusive_call.hpp"
#include "pipeline_run/pipe_schedule.hpp"

namespace dsc {

inline Pinned<PipeSchedule> pin_pipe_schedule(const void* handle) {
  return Pinned<PipeSchedule>(HandleKind::kPipeSchedule, handle);
}

inline dsc_pipe_schedule_t* open_schedule(std::shared_ptr<const PipelinePlan> plan, int32_t stage) {
  return open_handle<dsc_pipe_schedule_t>(HandleKind::kPipeSchedule,
                                          std::make_shared<PipeSchedule>(std::move(plan), stage));
}

// These convert the options of a schedule. They throw for values that are wrong for every schedule.
dsc_pipe_schedule_options_t read_schedule_options(const dsc_pipe_schedule_options_t* options);
ScheduleSpec spec_of(const dsc_pipe_schedule_options_t& options);
PlacementShape shape_of(const dsc_pipe_schedule_options_t& options);

// Checks the number of a stage; -1 means the whole pipeline.
int32_t checked_stage(int32_t stage, int32_t stages);

using PipeScheduleCall = ExclusiveCall<PipeSchedule, HandleKind::kPipeSchedule>;

inline dsc_pipe_instruction_t public_instruction(const Instruction& instruction,
                                                 size_t struct_size) noexcept {
  return {.struct_size = struct_size,
          .step = instruction.step,
          .op = static_cast<int32_t>(instruction.op),
          .micro_batch = instruction.micro_batch,
          .chunk = instruction.chunk,
          .buffer = instruction.buffer,
          .peer = instruction.peer,
          .reserved = 0};
}

}  // namespace dsc
