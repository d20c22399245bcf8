// Records which pass of a pipeline the calling thread is running.
#pragma once

#include "pipeline/ir.hpp"

namespace dsc {

// While an object of this class exists, its thread counts as being inside the callback of an instruction.
class RunningPass {
 public:
  explicit RunningPass(const Instruction& instruction) noexcept;
  ~RunningPass();
  RunningPass(const RunningPass&) = delete;
  RunningPass& operator=(const RunningPass&) = delete;

 private:
  const Instruction* const before_;
};

// Throws STATE if called inside the callback of a forward or backward pass. Gradients are reduced once per
// step, and inside a pass the gradients of other micro-batches are not ready yet. `call` is the name of the
// function for the message.
void refuse_reduction_in_pass(const char* call);

}  // namespace dsc
