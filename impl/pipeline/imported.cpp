#include "pipeline/imported.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "pipeline/global_order.hpp"
#include "pipeline/lower.hpp"

namespace dsc {
namespace {

// Limits for expect_few_steps(). A text may have more steps than events, because stages can be idle most of
// the time. The limit is kSpareSteps plus kMostStepsPerEvent for each event.
constexpr int64_t kSpareSteps = int64_t{1} << 20;
constexpr int64_t kMostStepsPerEvent = 16;

// The size of an imported schedule.
struct Size {
  int32_t parts = 0;
  int32_t micro_batches = 0;
  int64_t computes = 0;
  bool has_backward = false;
  // Numbers of the lines with the largest part and the largest micro-batch, for error messages.
  size_t part_line = 0, micro_batch_line = 0;
};

Size size_of(const Imported& imported) {
  Size size;
  size.parts = size.micro_batches = -1;
  const auto raise = [](int32_t& most, size_t& line, int32_t value, const ImportedOp& it) {
    if (value <= most) return;
    most = value;
    line = it.line;
  };
  for (const auto& stage : imported.stages)
    for (const ImportedOp& it : stage) {
      if (it.event.op.op == kIdle) continue;
      raise(size.parts, size.part_line, it.part, it);
      raise(size.micro_batches, size.micro_batch_line, it.event.op.micro_batch, it);
      const bool is_message = is_send(it.event.op.op) || is_recv(it.event.op.op);
      if (!is_message) ++size.computes;
      if (!is_message && it.event.op.op != PipeOp::kForward) size.has_backward = true;
    }
  if (size.computes == 0) fail(DSC_ERR_INVALID_ARG, "the schedule has no operations");
  if (size.parts == INT32_MAX || size.micro_batches == INT32_MAX)
    fail(DSC_ERR_INVALID_ARG,
         "the last stage of the model is %d and the last micro-batch is %d, expected at most %d", size.parts,
         size.micro_batches, INT32_MAX - 1);
  ++size.parts;
  ++size.micro_batches;
  return size;
}

// Checks the numbers before memory is allocated for them, because a short text can contain large numbers.
void check_size(const Size& size, int32_t ranks) {
  if (size.parts % ranks != 0)
    fail(DSC_ERR_INVALID_ARG,
         "there are %d stages of the model (the highest in line %zu) on %d ranks, expected a multiple of %d "
         "stages",
         size.parts, size.part_line, ranks, ranks);
  const int64_t passes = int64_t{size.parts} * size.micro_batches * (size.has_backward ? 2 : 1);
  if (size.computes < passes)
    fail(DSC_ERR_INVALID_ARG,
         "there are %lld operations, expected %lld or more for %d stages of the model (the highest in line "
         "%zu) and %d micro-batches (the highest in line %zu)",
         static_cast<long long>(size.computes), static_cast<long long>(passes), size.parts, size.part_line,
         size.micro_batches, size.micro_batch_line);
}

// Returns the first operation that the text lists on another stage than the placement does; null if there is
// none.
const ImportedOp* misplaced(const Imported& imported, const Placement& placement, int32_t& rank) {
  for (rank = 0; rank < placement.stages(); ++rank)
    for (const ImportedOp& it : imported.stages[static_cast<size_t>(rank)])
      if (it.event.op.op != kIdle && placement.stage(it.part) != rank) return &it;
  return nullptr;
}

PlacementShape shape_of(const Imported& imported, int32_t ranks, int32_t chunks) {
  int32_t rank = 0;
  const Placement loop(ranks, chunks, PlacementShape::kLoop);
  const ImportedOp* problem = misplaced(imported, loop, rank);
  if (!problem) return PlacementShape::kLoop;
  int32_t other = 0;
  const Placement zig_zag(ranks, chunks, PlacementShape::kZigZag);
  if (!misplaced(imported, zig_zag, other)) return PlacementShape::kZigZag;
  fail(DSC_ERR_INVALID_ARG,
       "line %zu: stage %d of the model is on rank %d, expected rank %d (loop) or %d (zigzag)", problem->line,
       problem->part, rank, loop.stage(problem->part), zig_zag.stage(problem->part));
}

// A listener that ignores all calls.
class Nobody final : public OrderListener {
 public:
  void compute(int32_t, const Compute&) override {}
  void activation(int32_t, int32_t) override {}
  void gradient(int32_t, int32_t) override {}
};

// Limits the number of steps: a list of all steps is allocated, and a short text could ask for millions of
// them.
void expect_few_steps(const Program& program) {
  int64_t events = 0;
  for (const StageProgram& stage : program) events += static_cast<int64_t>(stage.events.size());
  const int64_t most = kSpareSteps + kMostStepsPerEvent * events;
  for (size_t s = 0; s < program.size(); ++s)
    if (program[s].steps > most)
      fail(DSC_ERR_INVALID_ARG,
           "stage %zu has %lld steps, expected at most %lld for %lld operations and messages", s,
           static_cast<long long>(program[s].steps), static_cast<long long>(most),
           static_cast<long long>(events));
}

}  // namespace

void expect_runs(const PipelinePlan& plan) {
  if (plan.program) expect_few_steps(*plan.program);
  Nobody nobody;
  put_in_order(plan, nobody);
  if (!plan.program) return;
  const auto has_buffers = [](const StageProgram& stage) {
    return std::ranges::any_of(stage.events, [](const Event& event) { return event.buffer >= 0; });
  };
  if (std::ranges::none_of(*plan.program, has_buffers)) return;
  // lower() throws if a buffer in the program is invalid.
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage) lower(plan, stage);
}

std::shared_ptr<const PipelinePlan> plan_of(const Imported& imported) {
  const auto ranks = static_cast<int32_t>(imported.stages.size());
  if (ranks == 0) fail(DSC_ERR_INVALID_ARG, "the schedule has no stages");
  const Size size = size_of(imported);
  check_size(size, ranks);
  const ScheduleSpec spec{.name = "custom",
                          .stages = ranks,
                          .micro_batches = size.micro_batches,
                          .chunks = size.parts / ranks,
                          .forward_only = !size.has_backward};
  const PlacementShape shape = shape_of(imported, ranks, spec.chunks);
  const Placement placement(ranks, spec.chunks, shape);
  std::vector<StageOrder> orders(imported.stages.size());
  Program program(imported.stages.size());
  for (size_t s = 0; s < imported.stages.size(); ++s) {
    program[s].steps = imported.has_messages ? imported.steps[s] : 0;
    for (const ImportedOp& it : imported.stages[s]) {
      Event event = it.event;
      if (event.op.op != kIdle) event.op.chunk = placement.chunk(it.part);
      if (!imported.has_messages) orders[s].push_back(event.op);
      program[s].events.push_back(event);
    }
  }
  std::shared_ptr<const ComputeOrder> order;
  if (imported.has_messages)
    order = computes_of(program);
  else
    order = std::make_shared<ListedOrder>(std::move(orders));
  auto plan = std::make_shared<PipelinePlan>(spec, std::move(order), shape);
  plan->is_custom = true;
  if (imported.has_messages) plan->program = std::make_shared<Program>(std::move(program));
  expect_runs(*plan);
  return plan;
}

}  // namespace dsc
