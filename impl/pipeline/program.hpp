// Programs: the operations and messages of all stages, each at an explicit position, as read from the
// schedule of another framework.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pipeline/compute_order.hpp"

namespace dsc {

// An operation or a message; for a message, chunk and micro-batch are those on this stage's side.
struct Event {
  Compute op;
  // Steps never decrease from one event to the next.
  int64_t step = 0;
  int32_t buffer = -1;  // -1 means any free buffer

  bool operator==(const Event&) const = default;
};

// The events of one stage, in order.
struct StageProgram {
  std::vector<Event> events;
  int64_t steps = 0;

  bool operator==(const StageProgram&) const = default;
};

using Program = std::vector<StageProgram>;  // indexed by stage

inline bool is_send(PipeOp op) noexcept { return op == PipeOp::kSendActivation || op == PipeOp::kSendGrad; }
inline bool is_recv(PipeOp op) noexcept { return op == PipeOp::kRecvActivation || op == PipeOp::kRecvGrad; }
inline bool moves_gradient(PipeOp op) noexcept { return op == PipeOp::kSendGrad || op == PipeOp::kRecvGrad; }

// Returns the order of the operations alone, without messages and idle steps.
std::shared_ptr<const ComputeOrder> computes_of(const Program& program);

struct PipelinePlan;

// Returns the program that consists of the instructions of all stages. Throws what lowering throws.
Program program_of(const PipelinePlan& plan);

}  // namespace dsc
