#include "dsc/pipe.h"

#include <algorithm>
#include <cstring>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "pipe_call.hpp"
#include "pipeline/catalog.hpp"

namespace {

constexpr size_t kFirstInstructionSize = 40;
constexpr size_t kFirstScheduleOptionsSize = 32;
static_assert(sizeof(dsc_pipe_instruction_t) == kFirstInstructionSize, "no padding, only appended fields");
static_assert(sizeof(dsc_pipe_schedule_options_t) == kFirstScheduleOptionsSize,
              "no padding, only appended fields");
static_assert(static_cast<int32_t>(dsc::PipeOp::kLoadMicroBatch) == DSC_PIPE_LOAD_MICRO_BATCH &&
                  static_cast<int32_t>(dsc::PipeOp::kSendActivation) == DSC_PIPE_SEND_ACTIVATION &&
                  static_cast<int32_t>(dsc::PipeOp::kRecvGrad) == DSC_PIPE_RECV_GRAD &&
                  static_cast<int32_t>(dsc::PipeOp::kOptimizerStep) == DSC_PIPE_OPTIMIZER_STEP &&
                  static_cast<int32_t>(dsc::PipeOp::kOverlap) == DSC_PIPE_OVERLAP,
              "one set of numbers");

dsc_pipe_schedule_options_t default_schedule_options() {
  dsc_pipe_schedule_options_t options{};
  options.struct_size = sizeof options;
  options.chunks = 1;
  return options;
}

size_t instruction_size(const dsc_pipe_instruction_t* instruction) {
  dsc::require(instruction, "instruction");
  size_t size = 0;
  std::memcpy(&size, instruction, sizeof size);
  if (size < kFirstInstructionSize)
    dsc::fail(DSC_ERR_INVALID_ARG, "instruction->struct_size is %zu, expected at least %zu", size,
              kFirstInstructionSize);
  return size;
}

}  // namespace

const char* dsc_pipe_op_name(int32_t op) { return dsc::pipe_op_name(op); }

dsc_result_t dsc_pipe_schedule_options_init(dsc_pipe_schedule_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__, [&] {
    dsc::init_sized(options, struct_size, default_schedule_options(), kFirstScheduleOptionsSize, "options");
  });
}

dsc_result_t dsc_pipe_schedule_create(const dsc_pipe_schedule_options_t* options,
                                      dsc_pipe_schedule_t** schedule) {
  return dsc::guard(__func__, [&] {
    dsc::require(schedule, "schedule");
    *schedule = nullptr;
    dsc::require(options, "options");
    const auto given =
        dsc::read_sized(options, default_schedule_options(), kFirstScheduleOptionsSize, "options");
    auto made = dsc::make_schedule({.name = &dsc::require(given.name, "options->name"),
                                    .stages = given.stages,
                                    .stage = given.stage,
                                    .micro_batches = given.micro_batches,
                                    .chunks = given.chunks});
    *schedule = dsc::open_handle<dsc_pipe_schedule_t>(dsc::HandleKind::kPipeSchedule,
                                                      std::make_shared<dsc::PipeSchedule>(std::move(made)));
  });
}

dsc_result_t dsc_pipe_schedule_next(dsc_pipe_schedule_t* schedule, dsc_pipe_instruction_t* instruction) {
  return dsc::guard(__func__, [&] {
    const dsc::PipeScheduleCall inside(schedule);
    const size_t size = instruction_size(instruction);
    dsc::Instruction next;
    if (!inside->instructions().next(next)) return DSC_DONE;
    const dsc_pipe_instruction_t made = dsc::public_instruction(next, size);
    if (size == sizeof made)
      *instruction = made;
    else
      std::memcpy(instruction, &made, std::min(size, sizeof made));  // a longer struct keeps its tail
    return DSC_OK;
  });
}

dsc_result_t dsc_pipe_schedule_reset(dsc_pipe_schedule_t* schedule) {
  return dsc::guard(__func__, [&] { dsc::PipeScheduleCall(schedule)->instructions().reset(); });
}

dsc_result_t dsc_pipe_schedule_steps(dsc_pipe_schedule_t* schedule, int64_t* steps) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    dsc::require(steps, "steps") = pinned->instructions().steps();
  });
}

dsc_result_t dsc_pipe_schedule_step(dsc_pipe_schedule_t* schedule, int64_t step, int32_t* micro_batch,
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

dsc_result_t dsc_pipe_schedule_buffers(dsc_pipe_schedule_t* schedule, int32_t* buffers) {
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
