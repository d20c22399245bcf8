// Calls on a schedule, and an instruction as callers see it.
#pragma once

#include "dsc/pipe.h"
#include "exclusive_call.hpp"
#include "pipeline_run/pipe_schedule.hpp"

namespace dsc {

inline Pinned<PipeSchedule> pin_pipe_schedule(const void* handle) {
  return Pinned<PipeSchedule>(HandleKind::kPipeSchedule, handle);
}

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
