// What the caller of a run does for it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "comm/tensor.hpp"
#include "pipeline/ir.hpp"

namespace dsc {

// Where an instruction's micro-batch lies: one pointer per tensor; null where the stage has no such end.
struct PipeBuffers {
  void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* const* output_grads = nullptr;
  void* const* input_grads = nullptr;
  double* loss = nullptr;
  std::span<const Tensor> input_tensors;  // what the micro-batch has there
  std::span<const Tensor> output_tensors;
  int64_t* const* output_shapes = nullptr;  // sizes that forward may write; null unless shapes are variable
};

class PipeActions {
 public:
  virtual ~PipeActions() = default;

  virtual bool has(PipeOp op) const noexcept = 0;
  // Zero, or the number that the caller gave for a failure. May throw what the caller threw.
  virtual int32_t carry_out(const Instruction& instruction, const PipeBuffers& buffers) = 0;
  // What the caller said of the latest failure; empty: nothing.
  virtual std::string problem() const = 0;
};

}  // namespace dsc
