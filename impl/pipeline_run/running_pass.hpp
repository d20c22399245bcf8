// Which pass of a pipeline the calling thread is inside.
#pragma once

#include "pipeline/ir.hpp"

namespace dsc {

// Says for its lifetime that this thread is inside the callback of an instruction.
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
// those of other micro-batches are still to come. `call` is the function of the reducer, for the text.
void refuse_reduction_in_pass(const char* call);

}  // namespace dsc
