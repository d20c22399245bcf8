// A schedule of a whole pipeline: the placement of the parts of the model, and the order in which each stage
// computes.
#pragma once

#include <memory>
#include <utility>

#include "pipeline/compute_order.hpp"
#include "pipeline/ir.hpp"
#include "pipeline/placement.hpp"
#include "pipeline/program.hpp"

namespace dsc {

// Limit on micro-batches times parts for functions that iterate over all operations. Larger schedules would
// take seconds and gigabytes.
inline constexpr int64_t kMostPlanned = int64_t{1} << 26;
inline constexpr int32_t kMostStages = int32_t{1} << 18;

using ClosedForm = std::unique_ptr<Schedule> (*)(ScheduleSpec);

// A schedule as orders of operations, before it is lowered to instructions.
struct PipelinePlan {
  PipelinePlan(ScheduleSpec what, std::shared_ptr<const ComputeOrder> how, PlacementShape shape)
      : spec(std::move(what)), placement(spec.stages, spec.chunks, shape), order(std::move(how)) {}

  ScheduleSpec spec;  // `stage` is not used here
  Placement placement;
  // Null if the order would be too large to store; `closed_form` then computes the instructions.
  std::shared_ptr<const ComputeOrder> order;
  // Includes the positions of messages. If it is null, the lowering determines them.
  std::shared_ptr<const Program> program;
  // Computes the instructions; null if they are lowered from the order.
  ClosedForm closed_form = nullptr;
  bool is_custom = false;  // the order is user-defined; name and numbers do not determine it

  // Throws OVERFLOW if the order is too large.
  void expect_order() const;
};

// The input that an operation takes from another part. It is available once that part's forward pass or input
// half is complete. If the operation takes no such input, `part` is kNone.
struct Source {
  static constexpr int32_t kNone = -1;

  int32_t part = kNone;
  bool is_gradient = false;
};

inline Source source_of(const Placement& placement, int32_t part, PipeOp op) noexcept {
  if (op == PipeOp::kForward && placement.has_input(part)) return {part - 1, false};
  if (runs_input_half(op) && placement.has_output(part)) return {part + 1, true};
  return {};
}

// Returns a hash of the whole order. Different orders have the same fingerprint with a probability of 2^-64.
uint64_t fingerprint_of(const PipelinePlan& plan);

}  // namespace dsc
