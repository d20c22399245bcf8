#include "pipeline_run/running_pass.hpp"

#include "base/error.hpp"
#include "pipeline_run/needs.hpp"

namespace dsc {
namespace {

thread_local const Instruction* running = nullptr;

}  // namespace

RunningPass::RunningPass(const Instruction& instruction) noexcept : before_(running) {
  running = &instruction;
}

RunningPass::~RunningPass() { running = before_; }

void refuse_reduction_in_pass(const char* call) {
  if (!running) return;
  switch (running->op) {
    case PipeOp::kForward:
    case PipeOp::kBackward:
    case PipeOp::kBackwardInput:
    case PipeOp::kBackwardWeight:
      fail(DSC_ERR_STATE,
           "%s is called inside the callback for %s: a pipeline reduces gradients once per step; accumulate "
           "them in the passes, and call it in reduce_grads",
           call, describe(*running).c_str());
    default:
      return;
  }
}

}  // namespace dsc
