// What the caller of a run does for it.
#pragma once

#include "pipeline/ir.hpp"

namespace dsc {

// Where an instruction's micro-batch lies: one pointer per tensor; null where the stage has no such end.
struct PipeBuffers {
  void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* const* output_grads = nullptr;
  void* const* input_grads = nullptr;
  double* loss = nullptr;
};

class PipeActions {
 public:
  virtual ~PipeActions() = default;

  virtual bool has(PipeOp op) const noexcept = 0;
  // Zero, or the number that the caller gave for a failure. May throw what the caller threw.
  virtual int32_t carry_out(const Instruction& instruction, const PipeBuffers& buffers) = 0;
};

}  // namespace dsc
