// The order in which each stage computes. This order defines the schedule; lowering adds messages and buffers
// to it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "pipeline/ir.hpp"

namespace dsc {

inline constexpr PipeOp kIdle{};  // a step in which the stage computes nothing

// One operation of a stage: forward, backward, backward_input, backward_weight, or nothing.
struct Compute {
  PipeOp op = kIdle;
  int32_t chunk = -1;
  int32_t micro_batch = -1;
  // The operation overlaps with the next one: one of them is a forward pass, the other a backward pass.
  bool overlaps = false;

  bool operator==(const Compute&) const = default;
};

inline bool runs_input_half(PipeOp op) noexcept {
  return op == PipeOp::kBackward || op == PipeOp::kBackwardInput;
}
inline bool runs_weight_half(PipeOp op) noexcept {
  return op == PipeOp::kBackward || op == PipeOp::kBackwardWeight;
}

// Gives access to the operations of each stage by position.
class ComputeOrder {
 public:
  virtual ~ComputeOrder() = default;
  virtual int64_t size(int32_t stage) const = 0;
  virtual Compute at(int32_t stage, int64_t k) const = 0;  // k is 0 to size(stage) - 1
};

using StageOrder = std::vector<Compute>;

// Stores every operation.
class ListedOrder final : public ComputeOrder {
 public:
  explicit ListedOrder(std::vector<StageOrder> stages) : stages_(std::move(stages)) {}

  int64_t size(int32_t stage) const override { return static_cast<int64_t>(of(stage).size()); }
  Compute at(int32_t stage, int64_t k) const override { return of(stage)[static_cast<size_t>(k)]; }

 private:
  const StageOrder& of(int32_t stage) const { return stages_[static_cast<size_t>(stage)]; }

  std::vector<StageOrder> stages_;
};

}  // namespace dsc
