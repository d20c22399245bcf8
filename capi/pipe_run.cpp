#include "dsc/pipe_run.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "comm_call.hpp"
#include "pipe_call.hpp"
#include "tensors.hpp"

namespace {

class Callbacks final : public dsc::PipeActions {
 public:
  explicit Callbacks(const dsc_pipe_callbacks_t& table) : table_(table) {}

  bool has(dsc::PipeOp op) const noexcept override { return find(op) != nullptr; }

  int32_t carry_out(const dsc::Instruction& instruction, const dsc::PipeBuffers& buffers) override {
    const dsc_pipe_instruction_t shown = dsc::public_instruction(instruction, sizeof(dsc_pipe_instruction_t));
    error_[0] = '\0';
    show(buffers.input_tensors, input_tensors_);
    show(buffers.output_tensors, output_tensors_);
    const dsc_pipe_call_t call{.struct_size = sizeof(dsc_pipe_call_t),
                               .instruction = &shown,
                               .inputs = buffers.inputs,
                               .outputs = buffers.outputs,
                               .output_grads = buffers.output_grads,
                               .input_grads = buffers.input_grads,
                               .loss = buffers.loss,
                               .input_tensors = buffers.inputs ? input_tensors_.data() : nullptr,
                               .output_tensors = buffers.outputs ? output_tensors_.data() : nullptr,
                               .output_shapes = buffers.output_shapes,
                               .error = error_,
                               .n_inputs = buffers.input_tensors.size(),
                               .n_outputs = buffers.output_tensors.size(),
                               .error_capacity = sizeof error_};
    return find(instruction.op)(table_.context, &call);
  }

  std::string problem() const override { return {error_, strnlen(error_, sizeof error_)}; }

 private:
  static void show(std::span<const dsc::Tensor> tensors, std::vector<dsc_tensor_t>& shown) {
    shown.clear();
    for (const dsc::Tensor& tensor : tensors)
      shown.push_back({.struct_size = sizeof(dsc_tensor_t),
                       .data = tensor.data,
                       .shape = tensor.has_shape ? tensor.shape.data() : nullptr,
                       .name = tensor.name,
                       .count = tensor.count,
                       .dtype = tensor.dtype,
                       .ndim = static_cast<int32_t>(tensor.shape.size()),
                       .device = tensor.device,
                       .expect_sparse = 0});
  }

  dsc_pipe_fn find(dsc::PipeOp op) const noexcept {
    switch (op) {
      case dsc::PipeOp::kLoadMicroBatch:
        return table_.load_micro_batch;
      case dsc::PipeOp::kForward:
        return table_.forward;
      case dsc::PipeOp::kBackward:
        return table_.backward;
      case dsc::PipeOp::kBackwardInput:
        return table_.backward_input;
      case dsc::PipeOp::kBackwardWeight:
        return table_.backward_weight;
      case dsc::PipeOp::kReduceTiedGrads:
        return table_.reduce_tied_grads;
      case dsc::PipeOp::kReduceGrads:
        return table_.reduce_grads;
      case dsc::PipeOp::kOptimizerStep:
        return table_.optimizer_step;
      default:
        return nullptr;
    }
  }

  const dsc_pipe_callbacks_t table_;
  std::vector<dsc_tensor_t> input_tensors_, output_tensors_;
  char error_[256] = "";
};

dsc_pipe_run_options_t default_pipe_run_options() {
  dsc_pipe_run_options_t options{};
  options.struct_size = sizeof options;
  return options;
}

dsc_pipe_callbacks_t default_callbacks() {
  dsc_pipe_callbacks_t callbacks{};
  callbacks.struct_size = sizeof callbacks;
  return callbacks;
}

std::unique_ptr<dsc::PipeActions> read_callbacks(const dsc_pipe_callbacks_t* given) {
  dsc::require(given, "callbacks");
  return std::make_unique<Callbacks>(dsc::read_sized(given, default_callbacks(), "callbacks"));
}

dsc::PipeShapes read_shapes(const dsc_pipe_run_options_t* given) {
  const auto options = dsc::read_sized(given, default_pipe_run_options(), "options");
  if (options.keep_replaced != 0 && options.keep_replaced != 1)
    dsc::fail(DSC_ERR_INVALID_ARG, "options->keep_replaced is %d, expected 0 or 1", options.keep_replaced);
  if (options.variable_shapes != 0 && options.variable_shapes != 1)
    dsc::fail(DSC_ERR_INVALID_ARG, "options->variable_shapes is %d, expected 0 or 1",
              options.variable_shapes);
  if (!options.memory && options.memory_bytes > 0)
    dsc::fail(DSC_ERR_INVALID_ARG,
              "options->memory is NULL, but options->memory_bytes is %zu; expected an address",
              options.memory_bytes);
  return {.inputs = dsc::read_tensors(options.inputs, options.n_inputs, "options->inputs"),
          .outputs = dsc::read_tensors(options.outputs, options.n_outputs, "options->outputs"),
          .stream = options.stream,
          .are_variable = options.variable_shapes == 1,
          .keeps_replaced = options.keep_replaced == 1,
          .memory = options.memory,
          .memory_bytes = options.memory_bytes};
}

}  // namespace

dsc_result_t dsc_pipe_callbacks_init(dsc_pipe_callbacks_t* callbacks, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(callbacks, struct_size, default_callbacks(), "callbacks"); });
}

dsc_result_t dsc_pipe_run_options_init(dsc_pipe_run_options_t* options, size_t struct_size) {
  return dsc::guard_pure(
      __func__, [&] { dsc::init_sized(options, struct_size, default_pipe_run_options(), "options"); });
}

dsc_result_t dsc_pipe_run_bytes(dsc_pipe_schedule_t* schedule, const dsc_pipe_run_options_t* options,
                                size_t* bytes) {
  return dsc::guard(__func__, [&] {
    dsc::require(bytes, "bytes");
    const dsc::PipeScheduleCall inside(schedule);
    *bytes = inside->runner().bytes_for(read_shapes(options));
  });
}

dsc_result_t dsc_pipe_run(dsc_pipe_schedule_t* schedule, dsc_comm_t* comm,
                          const dsc_pipe_callbacks_t* callbacks, const dsc_pipe_run_options_t* options,
                          double* mean_loss) {
  return dsc::guard(__func__, [&] {
    const dsc::PipeScheduleCall inside(schedule);
    const dsc::CommCall pipeline(comm);
    const double mean = inside->runner().run(*pipeline, [&] {
      return dsc::PipeRequest{read_callbacks(callbacks), read_shapes(options), mean_loss != nullptr};
    });
    if (mean_loss) *mean_loss = mean;
  });
}
