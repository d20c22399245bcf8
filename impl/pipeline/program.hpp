// Everything that stages do, with the places of their messages, as somebody else decided them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pipeline/compute_order.hpp"

namespace dsc {

// An operation or a message; the latter has the chunk and micro-batch on this stage's side.
struct Event {
  Compute op;
  int64_t step = 0;     // never falling
  int32_t buffer = -1;  // -1: any that is free

  bool operator==(const Event&) const = default;
};

struct StageProgram {
  std::vector<Event> events;
  int64_t steps = 0;

  bool operator==(const StageProgram&) const = default;
};

using Program = std::vector<StageProgram>;  // by stage

inline bool is_send(PipeOp op) noexcept { return op == PipeOp::kSendActivation || op == PipeOp::kSendGrad; }
inline bool is_recv(PipeOp op) noexcept { return op == PipeOp::kRecvActivation || op == PipeOp::kRecvGrad; }
inline bool moves_gradient(PipeOp op) noexcept { return op == PipeOp::kSendGrad || op == PipeOp::kRecvGrad; }

// What of it is computed, without what is idle.
std::shared_ptr<const ComputeOrder> computes_of(const Program& program);

struct PipelinePlan;

// What the instructions of all stages come to. Throws as their making does.
Program program_of(const PipelinePlan& plan);

}  // namespace dsc
