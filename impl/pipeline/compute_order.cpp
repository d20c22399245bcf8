#include "pipeline/compute_order.hpp"

#include "pipeline/orders.hpp"

namespace dsc {

std::shared_ptr<ComputeOrder> only_forward(const ComputeOrder& order, int32_t stages) {
  std::vector<StageOrder> forward(static_cast<size_t>(stages));
  for (int32_t stage = 0; stage < stages; ++stage)
    for (int64_t k = 0; k < order.size(stage); ++k)
      if (Compute op = order.at(stage, k); op.op == PipeOp::kForward) {
        op.overlaps = false;
        forward[static_cast<size_t>(stage)].push_back(op);
      }
  return std::make_shared<ListedOrder>(std::move(forward));
}

// Merges a weight half that directly follows the input half of the same pass into a whole backward pass.
std::shared_ptr<ComputeOrder> merged(const ComputeOrder& order, int32_t stages) {
  std::vector<StageOrder> all(static_cast<size_t>(stages));
  for (int32_t stage = 0; stage < stages; ++stage) {
    StageOrder& out = all[static_cast<size_t>(stage)];
    for (int64_t k = 0; k < order.size(stage); ++k) {
      const Compute op = order.at(stage, k);
      const bool ends_half = op.op == PipeOp::kBackwardWeight && !out.empty() &&
                             out.back() == Compute{PipeOp::kBackwardInput, op.chunk, op.micro_batch};
      if (ends_half)
        out.back().op = PipeOp::kBackward;
      else if (op.op != kIdle)
        out.push_back(op);
    }
  }
  return std::make_shared<ListedOrder>(std::move(all));
}

}  // namespace dsc
