#include "dsc/pipe.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "give.hpp"
#include "pipe_call.hpp"
#include "pipeline/catalog.hpp"

namespace {

static_assert(static_cast<int32_t>(dsc::PlacementShape::kLoop) == DSC_PIPE_PLACEMENT_LOOP &&
                  static_cast<int32_t>(dsc::PlacementShape::kZigZag) == DSC_PIPE_PLACEMENT_ZIGZAG &&
                  static_cast<int32_t>(dsc::PlacementShape::kApart) == DSC_PIPE_PLACEMENT_APART &&
                  static_cast<int32_t>(dsc::PipeMessages::kWhenNeeded) == DSC_PIPE_MESSAGES_WHEN_NEEDED &&
                  static_cast<int32_t>(dsc::PipeMessages::kAtOnce) == DSC_PIPE_MESSAGES_AT_ONCE,
              "one set of numbers");
static_assert(static_cast<int32_t>(dsc::PipeOp::kLoadMicroBatch) == DSC_PIPE_OP_LOAD_MICRO_BATCH &&
                  static_cast<int32_t>(dsc::PipeOp::kSendActivation) == DSC_PIPE_OP_SEND_ACTIVATION &&
                  static_cast<int32_t>(dsc::PipeOp::kRecvGrad) == DSC_PIPE_OP_RECV_GRAD &&
                  static_cast<int32_t>(dsc::PipeOp::kOptimizerStep) == DSC_PIPE_OP_OPTIMIZER_STEP &&
                  static_cast<int32_t>(dsc::PipeOp::kOverlap) == DSC_PIPE_OP_OVERLAP,
              "one set of numbers");

dsc_pipe_schedule_options_t default_schedule_options() {
  dsc_pipe_schedule_options_t options{};
  options.struct_size = sizeof options;
  return options;
}

dsc::StageOrder read_order(int32_t stage, const dsc_pipe_compute_t* operations, size_t begin, size_t end) {
  dsc::StageOrder order;
  for (size_t k = begin; k < end; ++k) {
    const dsc_pipe_compute_t& it = operations[k];
    if (it.overlaps != 0 && it.overlaps != 1)
      dsc::fail(DSC_ERR_INVALID_ARG, "stage %d: overlaps of operation %zu is %d, expected 0 or 1", stage,
                k - begin, it.overlaps);
    if (it.op == 0)
      order.emplace_back();
    else
      order.push_back({static_cast<dsc::PipeOp>(it.op), it.chunk, it.micro_batch, it.overlaps == 1});
  }
  return order;
}

}  // namespace

namespace dsc {

dsc_pipe_schedule_options_t read_schedule_options(const dsc_pipe_schedule_options_t* options) {
  return read_sized(options, default_schedule_options(), "options");
}

ScheduleSpec spec_of(const dsc_pipe_schedule_options_t& options) {
  if (options.messages != DSC_PIPE_MESSAGES_WHEN_NEEDED && options.messages != DSC_PIPE_MESSAGES_AT_ONCE)
    fail(DSC_ERR_INVALID_ARG, "options->messages is %d, expected 0 (when_needed) or 1 (at_once)",
         options.messages);
  return {.name = options.name ? options.name : "",
          .stages = options.stages,
          .stage = options.stage,
          .micro_batches = options.micro_batches,
          .chunks = options.chunks,
          .micro_batch_group = options.micro_batch_group,
          .forward_only = dsc::read_flag("options->forward_only", options.forward_only),
          .merge_backward = dsc::read_flag("options->merge_backward", options.merge_backward),
          .messages = static_cast<PipeMessages>(options.messages)};
}

PlacementShape shape_of(const dsc_pipe_schedule_options_t& options) {
  if (options.placement < DSC_PIPE_PLACEMENT_LOOP || options.placement > DSC_PIPE_PLACEMENT_APART)
    fail(DSC_ERR_INVALID_ARG, "options->placement is %d, expected 0 (loop), 1 (zigzag) or 2 (apart)",
         options.placement);
  return static_cast<PlacementShape>(options.placement);
}

int32_t checked_stage(const char* name, int32_t stage, int32_t stages) {
  if (stage < PipeSchedule::kAllStages || stage >= stages)
    fail(DSC_ERR_INVALID_ARG, "%s is %d, expected 0 to %d, or none (-1) for the whole pipeline", name, stage,
         stages - 1);
  return stage;
}

}  // namespace dsc

const char* dsc_pipe_op_name(int32_t op) { return dsc::pipe_op_name(op); }

dsc_result_t dsc_pipe_schedule_options_init(dsc_pipe_schedule_options_t* options, size_t struct_size) {
  return dsc::guard_pure(
      __func__, [&] { dsc::init_sized(options, struct_size, default_schedule_options(), "options"); });
}

dsc_result_t dsc_pipe_schedule_create(const dsc_pipe_schedule_options_t* options,
                                      dsc_pipe_schedule_t** schedule) {
  return dsc::guard(__func__, [&] {
    dsc::require(schedule, "schedule");
    *schedule = nullptr;
    dsc::require(options, "options");
    const auto given = dsc::read_schedule_options(options);
    dsc::require(given.name, "options->name");
    if (given.placement != 0)
      dsc::fail(DSC_ERR_INVALID_ARG,
                "options->placement is %d, expected 0: the name of the schedule determines it",
                given.placement);
    auto plan = dsc::make_plan(dsc::spec_of(given));
    *schedule =
        dsc::open_schedule(plan, dsc::checked_stage("options->stage", given.stage, plan->spec.stages));
  });
}

dsc_result_t dsc_pipe_schedule_create_custom(const dsc_pipe_schedule_options_t* options,
                                             const dsc_pipe_compute_t* operations, const size_t* starts,
                                             dsc_pipe_schedule_t** schedule) {
  return dsc::guard(__func__, [&] {
    dsc::require(schedule, "schedule");
    *schedule = nullptr;
    dsc::require(options, "options");
    dsc::require(operations, "operations");
    dsc::require(starts, "starts");
    const auto given = dsc::read_schedule_options(options);
    auto spec = dsc::spec_of(given);
    dsc::complete_custom(spec);
    std::vector<dsc::StageOrder> orders;
    for (int32_t stage = 0; stage < spec.stages; ++stage) {
      if (starts[stage] > starts[stage + 1])
        dsc::fail(DSC_ERR_INVALID_ARG, "starts[%d] is %zu, expected at most starts[%d], which is %zu", stage,
                  starts[stage], stage + 1, starts[stage + 1]);
      orders.push_back(read_order(stage, operations, starts[stage], starts[stage + 1]));
    }
    auto plan = dsc::make_custom(std::move(spec), std::move(orders), dsc::shape_of(given));
    *schedule =
        dsc::open_schedule(plan, dsc::checked_stage("options->stage", given.stage, plan->spec.stages));
  });
}

dsc_result_t dsc_pipe_schedule_at_stage(const dsc_pipe_schedule_t* schedule, int32_t stage,
                                        dsc_pipe_schedule_t** other) {
  return dsc::guard(__func__, [&] {
    dsc::require(other, "other");
    *other = nullptr;
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    *other =
        dsc::open_schedule(pinned->plan(), dsc::checked_stage("stage", stage, pinned->plan()->spec.stages));
  });
}

dsc_result_t dsc_pipe_schedule_info(const dsc_pipe_schedule_t* schedule, dsc_pipe_schedule_info_t* info) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    const dsc::PipelinePlan& plan = *pinned->plan();
    dsc_pipe_schedule_info_t found{};
    found.stages = plan.spec.stages;
    found.stage = pinned->stage();
    found.micro_batches = plan.spec.micro_batches;
    found.chunks = plan.spec.chunks;
    found.micro_batch_group = plan.spec.micro_batch_group;
    found.forward_only = plan.spec.forward_only ? 1 : 0;
    found.messages = static_cast<int32_t>(plan.spec.messages);
    found.placement = static_cast<int32_t>(plan.placement.shape());
    dsc::write_sized(info, found, "info");
  });
}

dsc_result_t dsc_pipe_schedule_name(const dsc_pipe_schedule_t* schedule, char* text, size_t capacity,
                                    size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    return dsc::give_text(pinned->plan()->spec.name, text, capacity, needed);
  });
}

dsc_result_t dsc_pipe_schedule_order(const dsc_pipe_schedule_t* schedule, int32_t stage, size_t first,
                                     dsc_pipe_compute_t* operations, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    const dsc::PipelinePlan& plan = *pinned->plan();
    plan.expect_order();
    dsc::check_rank("stage", stage, plan.spec.stages);
    dsc::check_room(operations, "operations", capacity, needed);
    const auto size = static_cast<size_t>(plan.order->size(stage));
    const size_t left = *needed = size - std::min(first, size);
    for (size_t i = 0; i < std::min(capacity, left); ++i) {
      const dsc::Compute op = plan.order->at(stage, static_cast<int64_t>(first + i));
      operations[i] = {static_cast<int32_t>(op.op), op.chunk, op.micro_batch, op.overlaps ? 1 : 0};
    }
    return dsc::how_given(left, capacity);
  });
}

dsc_result_t dsc_pipe_schedule_next(dsc_pipe_schedule_t* schedule, dsc_pipe_instruction_t* instruction) {
  return dsc::guard(__func__, [&] {
    const dsc::PipeScheduleCall inside(schedule);
    const size_t size = dsc::struct_size_of(instruction, "instruction");
    dsc::Instruction next;
    if (!inside->instructions().next(next)) return DSC_DONE;
    const dsc_pipe_instruction_t made = dsc::public_instruction(next, size);
    if (size == sizeof made)
      *instruction = made;
    else
      dsc::write_sized(instruction, made, "instruction");
    return DSC_OK;
  });
}

dsc_result_t dsc_pipe_schedule_reset(dsc_pipe_schedule_t* schedule) {
  return dsc::guard(__func__, [&] { dsc::PipeScheduleCall(schedule)->instructions().reset(); });
}

dsc_result_t dsc_pipe_schedule_steps(const dsc_pipe_schedule_t* schedule, int64_t* steps) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    dsc::require(steps, "steps") = pinned->instructions().steps();
  });
}

dsc_result_t dsc_pipe_schedule_step(const dsc_pipe_schedule_t* schedule, int64_t step, int32_t* micro_batch,
                                    int32_t* is_forward) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    dsc::require(micro_batch, "micro_batch");
    dsc::require(is_forward, "is_forward");
    const int64_t steps = pinned->instructions().steps();
    if (step < 0 || step >= steps)
      dsc::fail(DSC_ERR_INVALID_ARG, "step is %lld, expected 0 to %lld", static_cast<long long>(step),
                static_cast<long long>(steps - 1));
    const dsc::StepView view = pinned->instructions().step(step);
    *micro_batch = view.micro_batch;
    *is_forward = view.is_forward ? 1 : 0;
  });
}

dsc_result_t dsc_pipe_schedule_buffers(const dsc_pipe_schedule_t* schedule, int32_t* buffers) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    dsc::require(buffers, "buffers") = pinned->instructions().buffers();
  });
}

dsc_result_t dsc_pipe_schedule_destroy(dsc_pipe_schedule_t* schedule) {
  return dsc::guard(__func__, [&] {
    if (schedule) dsc::pin_pipe_schedule(schedule).close();
  });
}
