// In which order each stage computes: what a schedule decides. All else follows by lowering.
#pragma once

#include <cstdint>
#include <memory>

#include "pipeline/ir.hpp"

namespace dsc {

// One operation of a stage: forward, backward, backward_input or backward_weight.
struct Compute {
  PipeOp op{};
  int32_t chunk = 0;
  int32_t micro_batch = 0;

  bool operator==(const Compute&) const = default;
};

class ComputeOrder {
 public:
  virtual ~ComputeOrder() = default;
  virtual int64_t size(int32_t stage) const = 0;
  virtual Compute at(int32_t stage, int64_t k) const = 0;  // k: 0 to size(stage) - 1
};

// All forward passes, then all backward passes.
std::shared_ptr<const ComputeOrder> gpipe_order(int32_t micro_batches);

// min(stages - 1 - stage, micro_batches) forward passes, then forward and backward in turn, then the rest.
std::shared_ptr<const ComputeOrder> one_f_one_b_order(int32_t stages, int32_t micro_batches);

}  // namespace dsc
