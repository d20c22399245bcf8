#include "dsc/pipe_text.h"

#include <string_view>
#include <utility>

#include "base/guard.hpp"
#include "checks.hpp"
#include "give.hpp"
#include "pipe_call.hpp"
#include "pipeline/imported.hpp"
#include "pipeline/text.hpp"

namespace {

static_assert(static_cast<int32_t>(dsc::PipeFormat::kPyTorchCompute) == DSC_PIPE_FORMAT_PYTORCH &&
                  static_cast<int32_t>(dsc::PipeFormat::kPyTorchComms) == DSC_PIPE_FORMAT_PYTORCH_COMMS &&
                  static_cast<int32_t>(dsc::PipeFormat::kDeepSpeedSteps) == DSC_PIPE_FORMAT_DEEPSPEED &&
                  static_cast<int32_t>(dsc::PipeFormat::kMegatronOrder) == DSC_PIPE_FORMAT_MEGATRON &&
                  static_cast<int32_t>(dsc::PipeFormat::kJson) == DSC_PIPE_FORMAT_JSON,
              "one set of numbers");

// Refuses an option that is set although the text already contains its value.
void expect_unset(const char* name, int32_t value) {
  if (value != 0) dsc::fail(DSC_ERR_INVALID_ARG, "%s is %d, expected 0: the text gives it", name, value);
}

void check_import(const dsc_pipe_schedule_options_t& options) {
  if (options.name)
    dsc::fail(DSC_ERR_INVALID_ARG, "name is \"%.32s\", expected NULL: the text gives it", options.name);
  expect_unset("stages", options.stages);
  expect_unset("micro_batches", options.micro_batches);
  expect_unset("chunks", options.chunks);
  expect_unset("micro_batch_group", options.micro_batch_group);
  expect_unset("forward_only", options.forward_only);
  expect_unset("placement", options.placement);
}

// A list of instructions that the program passes. The distance between them is their struct_size, which may
// differ from the size in this release.
class Instructions {
 public:
  Instructions(const dsc_pipe_instruction_t* first, size_t count) : first_(first), count_(count) {
    if (count_ == 0) return;
    size_ = dsc::struct_size_of(&dsc::require(first, "instructions"), "instructions[0]");
  }

  dsc_pipe_instruction_t at(size_t i) const {
    dsc_pipe_instruction_t it{};
    std::memcpy(&it, reinterpret_cast<const std::byte*>(first_) + i * size_, std::min(size_, sizeof it));
    return it;
  }

 private:
  const dsc_pipe_instruction_t* first_;
  size_t count_;
  size_t size_ = 0;
};

bool is_passed_over(int32_t op) {
  return op == DSC_PIPE_OP_LOAD_MICRO_BATCH || op == DSC_PIPE_OP_OVERLAP ||
         op == DSC_PIPE_OP_REDUCE_TIED_GRADS || op == DSC_PIPE_OP_REDUCE_GRADS ||
         op == DSC_PIPE_OP_OPTIMIZER_STEP;
}

[[noreturn]] void refuse(int32_t stage, size_t number, const dsc_pipe_instruction_t& it, const char* field,
                         int64_t value, const std::string& expected) {
  dsc::fail(DSC_ERR_INVALID_ARG, "stage %d: %s of instruction %zu, %s, is %lld, expected %s", stage, field,
            number, dsc::pipe_op_name(it.op), static_cast<long long>(value), expected.c_str());
}

// Checks the peer of a message: it must be the stage that has the next or the previous part of the model.
void check_peer(int32_t stage, size_t number, const dsc_pipe_instruction_t& it,
                const dsc::Placement& placement) {
  const bool to_next = it.op == DSC_PIPE_OP_SEND_ACTIVATION || it.op == DSC_PIPE_OP_RECV_GRAD;
  if (it.chunk < 0 || it.chunk >= placement.chunks())
    refuse(stage, number, it, "chunk", it.chunk, "0 to " + std::to_string(placement.chunks() - 1));
  const int32_t part = placement.part(stage, it.chunk);
  // The model ends here, so there is no peer; a later check reports this.
  if (to_next ? !placement.has_output(part) : !placement.has_input(part)) return;
  const int32_t peer = placement.stage(part + (to_next ? 1 : -1));
  if (it.peer != peer)
    refuse(
        stage, number, it, "peer", it.peer,
        std::to_string(peer) + ", which has the " + (to_next ? "next" : "previous") + " part of the model");
}

dsc::StageProgram read_program(int32_t stage, const Instructions& instructions, size_t begin, size_t end,
                               const dsc::Placement& placement) {
  dsc::StageProgram program;
  int64_t step = 0;
  for (size_t i = begin; i < end; ++i) {
    const dsc_pipe_instruction_t it = instructions.at(i);
    if (it.op < DSC_PIPE_OP_LOAD_MICRO_BATCH || it.op > DSC_PIPE_OP_OVERLAP)
      refuse(stage, i - begin, it, "op", it.op, "1 to 13");
    if (it.step < step) refuse(stage, i - begin, it, "step", it.step, std::to_string(step) + " or more");
    if (it.step > INT32_MAX - 1)
      refuse(stage, i - begin, it, "step", it.step, "at most " + std::to_string(INT32_MAX - 1));
    step = it.step;
    if (is_passed_over(it.op)) continue;
    const auto op = static_cast<dsc::PipeOp>(it.op);
    if (dsc::is_send(op) || dsc::is_recv(op)) check_peer(stage, i - begin, it, placement);
    program.events.push_back({{op, it.chunk, it.micro_batch, false}, step, std::max(it.buffer, -1)});
  }
  program.steps = step + 1;
  return program;
}

void validate(const dsc_pipe_schedule_options_t& options, const dsc_pipe_instruction_t* instructions,
              const size_t* starts) {
  auto spec = dsc::spec_of(options);
  dsc::complete_custom(spec);
  const auto shape = dsc::shape_of(options);
  const dsc::Placement placement(spec.stages, spec.chunks, shape);
  for (int32_t stage = 0; stage < spec.stages; ++stage)
    if (starts[stage] > starts[stage + 1])
      dsc::fail(DSC_ERR_INVALID_ARG, "starts[%d] is %zu, expected at most starts[%d], which is %zu", stage,
                starts[stage], stage + 1, starts[stage + 1]);
  const Instructions all(instructions, starts[spec.stages]);
  auto program = std::make_shared<dsc::Program>();
  for (int32_t stage = 0; stage < spec.stages; ++stage)
    program->push_back(read_program(stage, all, starts[stage], starts[stage + 1], placement));
  dsc::PipelinePlan plan(std::move(spec), dsc::computes_of(*program), shape);
  plan.program = std::move(program);
  dsc::expect_runs(plan);
}

}  // namespace

dsc_result_t dsc_pipe_schedule_export(const dsc_pipe_schedule_t* schedule, int32_t format, char* text,
                                      size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    return dsc::give_text(dsc::write_schedule(*pinned->plan(), static_cast<dsc::PipeFormat>(format)), text,
                          capacity, needed);
  });
}

dsc_result_t dsc_pipe_schedule_import(const char* text, size_t bytes, int32_t format,
                                      const dsc_pipe_schedule_options_t* options,
                                      dsc_pipe_schedule_t** schedule) {
  return dsc::guard(__func__, [&] {
    dsc::require(schedule, "schedule");
    *schedule = nullptr;
    dsc::require(text, "text");
    const auto given = dsc::read_schedule_options(options);
    check_import(given);
    const auto spec = dsc::spec_of(given);
    auto plan = dsc::read_schedule({text, bytes}, static_cast<dsc::PipeFormat>(format));
    const bool is_changed = spec.merge_backward || spec.messages != dsc::PipeMessages::kWhenNeeded;
    const auto messages =
        spec.messages == dsc::PipeMessages::kWhenNeeded ? plan->spec.messages : spec.messages;
    if (is_changed) plan = dsc::changed(*plan, spec.merge_backward, messages);
    const int32_t stage = dsc::checked_stage(spec.stage, plan->spec.stages);
    *schedule = dsc::open_schedule(std::move(plan), stage);
  });
}

dsc_result_t dsc_pipe_validate(const dsc_pipe_schedule_options_t* options,
                               const dsc_pipe_instruction_t* instructions, const size_t* starts) {
  return dsc::guard(__func__, [&] {
    dsc::require(options, "options");
    dsc::require(instructions, "instructions");
    dsc::require(starts, "starts");
    validate(dsc::read_schedule_options(options), instructions, starts);
  });
}
