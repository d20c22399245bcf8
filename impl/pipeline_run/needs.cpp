#include "pipeline_run/needs.hpp"

namespace dsc {

PipeNeeds::PipeNeeds(Schedule& schedule) {
  schedule.reset();
  Instruction instruction;
  while (schedule.next(instruction))
    if (auto& first = first_[static_cast<size_t>(instruction.op)]; !first) first = instruction;
  schedule.reset();
}

bool is_message(PipeOp op) noexcept {
  return op == PipeOp::kSendActivation || op == PipeOp::kRecvActivation || op == PipeOp::kSendGrad ||
         op == PipeOp::kRecvGrad;
}

std::string describe(const Instruction& instruction) {
  std::string text = pipe_op_name(instruction.op);
  if (instruction.micro_batch >= 0) text += " of micro-batch " + std::to_string(instruction.micro_batch);
  if (instruction.chunk > 0) text += ", chunk " + std::to_string(instruction.chunk) + ",";
  return text + " in step " + std::to_string(instruction.step);
}

}  // namespace dsc
