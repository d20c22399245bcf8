// The pass of a pipeline that the calling thread is running.
#pragma once

#include "pipeline/ir.hpp"

namespace dsc {

// For its lifetime, records that this thread is inside the callback of an instruction.
class RunningPass {
 public:
  explicit RunningPass(const Instruction& instruction) noexcept;
  ~RunningPass();
  RunningPass(const RunningPass&) = delete;
  RunningPass& operator=(const RunningPass&) = delete;

 private:
  const Instruction* const before_;
};

// Throws STATE inside the callback of a forward or backward pass: gradients are reduced once per step, and
// the gradients of other micro-batches are not ready yet. `call` is the function of the reducer, for the
// text.
void refuse_reduction_in_pass(const char* call);

}  // namespace dsc
