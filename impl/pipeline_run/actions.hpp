// The interface through which a run calls the user-defined passes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "comm/tensor.hpp"
#include "pipeline/ir.hpp"

namespace dsc {

// The buffers of an instruction's micro-batch: one pointer per tensor; null if the stage has no such end.
struct PipeBuffers {
  void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* const* output_grads = nullptr;
  void* const* input_grads = nullptr;
  double* loss = nullptr;
  std::span<const Tensor> input_tensors;  // shapes of the micro-batch's tensors
  std::span<const Tensor> output_tensors;
  int64_t* const* output_shapes = nullptr;  // where forward may write sizes; null unless shapes are variable
};

// Implemented for each way in which a caller passes callbacks.
class PipeActions {
 public:
  virtual ~PipeActions() = default;

  virtual bool has(PipeOp op) const noexcept = 0;
  // Returns 0, or the caller's number for a failure. May throw what the callback throws.
  virtual int32_t carry_out(const Instruction& instruction, const PipeBuffers& buffers) = 0;
  // Returns the caller's text about the latest failure; empty if there is none.
  virtual std::string problem() const = 0;
};

}  // namespace dsc
