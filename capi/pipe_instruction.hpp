// An instruction as callers see it.
#pragma once

#include "dsc/pipe.h"
#include "pipeline/ir.hpp"

namespace dsc {

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
