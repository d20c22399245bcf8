// A schedule of a whole pipeline: where the parts of the model are, and in which order each stage computes.
#pragma once

#include <memory>
#include <utility>

#include "pipeline/compute_order.hpp"
#include "pipeline/ir.hpp"
#include "pipeline/placement.hpp"
#include "pipeline/program.hpp"

namespace dsc {

// Whatever looks at every operation refuses more micro-batches in all parts of the model together, which
// would take seconds and gigabytes.
inline constexpr int64_t kMostPlanned = int64_t{1} << 26;
inline constexpr int32_t kMostStages = int32_t{1} << 18;

using ClosedForm = std::unique_ptr<Schedule> (*)(ScheduleSpec);

struct PipelinePlan {
  PipelinePlan(ScheduleSpec what, std::shared_ptr<const ComputeOrder> how, PlacementShape shape)
      : spec(std::move(what)), placement(spec.stages, spec.chunks, shape), order(std::move(how)) {}

  ScheduleSpec spec;  // its stage is of no meaning here
  Placement placement;
  std::shared_ptr<const ComputeOrder> order;  // null if it is too large, and has instructions without it
  std::shared_ptr<const Program> program;     // places of messages; null: the lowering finds them
  ClosedForm closed_form = nullptr;           // of the instructions; null: they are lowered
  bool is_custom = false;                     // its name and numbers do not say what it is

  // Throws OVERFLOW.
  void expect_order() const;
};

// What an operation takes from another part: its forward pass or input half must be done. Or nothing.
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

// Two orders with the same one are the same, as far as 64 bits can tell. Goes through all of it.
uint64_t fingerprint_of(const PipelinePlan& plan);

}  // namespace dsc
