// The interface through which a run calls the user-defined passes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "comm/tensor.hpp"
#include "pipeline/ir.hpp"

namespace dsc {

// The buffers of an instruction's micro-batch. Each list has one pointer per tensor, or is null if the
// stage has no such tensors.
struct PipeBuffers {
  void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* const* output_grads = nullptr;
  void* const* input_grads = nullptr;
  double* loss = nullptr;
  std::span<const Tensor> input_tensors;  // shapes of the micro-batch's input tensors
  std::span<const Tensor> output_tensors;
  // Where forward writes the sizes of its outputs; null unless shapes are variable.
  int64_t* const* output_shapes = nullptr;
};

// Calls the user-defined functions. There is an implementation for each way to pass callbacks.
class PipeActions {
 public:
  virtual ~PipeActions() = default;

  virtual bool has(PipeOp op) const noexcept = 0;
  // Calls the function for an instruction. Returns 0, or the function's own error number if it failed. Throws
  // what the function throws.
  virtual int32_t carry_out(const Instruction& instruction, const PipeBuffers& buffers) = 0;
  // Returns the error message of the latest failed function; empty if there is none.
  virtual std::string problem() const = 0;
};

}  // namespace dsc
