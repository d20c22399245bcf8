#include "pipe_stage.hpp"

#include <pthread.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

extern "C" {
#include "gpu.h"
}

namespace pipe {
namespace {

// What a tensor of a callback holds, wherever it is.
template <typename T>
std::vector<T> read(const void* tensor, int count) {
  std::vector<T> values(static_cast<size_t>(count));
  const size_t bytes = values.size() * sizeof(T);
  if (gpu_wanted())
    gpu_download(values.data(), tensor, bytes);
  else
    std::memcpy(values.data(), tensor, bytes);
  return values;
}

template <typename T>
void write(void* tensor, const std::vector<T>& values) {
  const size_t bytes = values.size() * sizeof(T);
  if (gpu_wanted())
    gpu_upload(tensor, values.data(), bytes);
  else
    std::memcpy(tensor, values.data(), bytes);
}

}  // namespace

double Stage::input(int stage, int micro_batch, int i) const {
  return stage == 0 || alone() ? micro_batch + 0.25 * i : output(stage - 1, micro_batch, i);
}

std::vector<double> Stage::outputs(int stage, int micro_batch) const {
  std::vector<double> values;
  for (int i = 0; i < kWidth; ++i) values.push_back(output(stage, micro_batch, i));
  return values;
}

// The last stage's loss is the sum over i of (i + 1) times its output.
double Stage::gradient(int stage, int i) const {
  return stage == self_->size - 1 ? i + 1 : gradient(stage + 1, i) * scale(stage + 1);
}

double Stage::expected_mean() const {
  double sum = 0;
  for (int m = 0; m < layout_.micro_batches; ++m)
    for (int i = 0; i < kWidth; ++i) sum += (i + 1) * output(self_->size - 1, m, i);
  return sum / layout_.micro_batches;
}

// After a failure a stage on a device goes on with whatever is there, until its next message.
int Stage::wrong(const char* what, double came, double expected) {
  dsc_error_info_t info{};
  info.struct_size = sizeof info;
  if (gpu_wanted() && dsc_comm_error(comm_, &info) == DSC_OK && info.revoked == 1) return 98;
  char text[200];
  std::snprintf(text, sizeof text, "%s of %s is %g, expected %g", what, layout_.name, came, expected);
  problem = text;
  return 99;
}

int Stage::prepare() {
  dsc_pipe_schedule_options_init(&schedule_options, sizeof schedule_options);
  schedule_options.name = layout_.name;
  schedule_options.stages = self_->size;
  schedule_options.stage = self_->rank;
  schedule_options.micro_batches = layout_.micro_batches;
  CHECK_OK(self_, dsc_pipe_schedule_create(&schedule_options, &schedule));
  callbacks.struct_size = sizeof callbacks;
  callbacks.context = this;
  callbacks.load_micro_batch = enter<&Stage::load>;
  callbacks.forward = enter<&Stage::forward>;
  callbacks.backward = enter<&Stage::backward>;
  callbacks.reduce_tied_grads = enter<&Stage::close_step>;
  callbacks.reduce_grads = enter<&Stage::reduce>;
  callbacks.optimizer_step = enter<&Stage::close_step>;
  const int32_t device = gpu_wanted() ? self_->options.device : -1;
  tensors[0] = {sizeof(dsc_tensor_t), nullptr, kWidth, shape, "x", DSC_DTYPE_F64, 2, device, 0};
  tensors[1] = {
      sizeof(dsc_tensor_t), nullptr, kLabelWidth, label_shape, nullptr, DSC_DTYPE_I32, 1, device, 0};
  dsc_pipe_run_options_init(&options, sizeof options);
  options.inputs = first() ? nullptr : tensors;
  options.n_inputs = first() ? 0 : 2;
  options.outputs = last() ? nullptr : tensors;
  options.n_outputs = last() ? 0 : 2;
  return 0;
}

dsc_result_t Stage::run(double* mean) { return dsc_pipe_run(schedule, comm_, &callbacks, &options, mean); }

int Stage::load(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  return first() || last() ? 0 : wrong("load_micro_batch on a stage in the middle: stage", self_->rank, -1);
}

int Stage::make_trouble() {
  if (self_->rank != trouble_rank) return 0;
  ++troubles;
  switch (trouble) {
    case Trouble::kReturns:
      return 7;
    case Trouble::kThrows:
      throw std::runtime_error("out of paint");
    case Trouble::kReenters: {
      dsc_pipe_instruction_t next{};
      next.struct_size = sizeof next;
      if (dsc_barrier(comm_, nullptr, nullptr) != DSC_ERR_BUSY)
        return wrong("a barrier inside", 0, DSC_ERR_BUSY);
      if (dsc_pipe_schedule_next(schedule, &next) != DSC_ERR_BUSY)
        return wrong("next inside", 0, DSC_ERR_BUSY);
      return 0;
    }
    case Trouble::kSleeps:
      for (int64_t end = now_ms() + 5000; now_ms() < end;) {
        dsc_error_info_t info{};
        info.struct_size = sizeof info;
        dsc_comm_error(comm_, &info);
        if (info.revoked) return 0;  // the others have given up on this rank
      }
      return wrong("seconds of sleep", 5, 0);
    case Trouble::kCancels:
      pthread_cancel(pthread_self());
      pthread_testcancel();
      return wrong("a cancelled thread", 1, 0);
    case Trouble::kDestroysSchedule:
      return dsc_pipe_schedule_destroy(schedule);
    case Trouble::kDestroysComm:
      return dsc_comm_destroy(comm_);
    default:
      return 0;
  }
}

int Stage::forward(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  const int m = call.instruction->micro_batch;
  const int stage = alone() ? self_->size - 1 : self_->rank;
  if ((call.inputs == nullptr) != first()) return wrong("inputs are NULL", call.inputs == nullptr, first());
  if ((call.outputs == nullptr) != last()) return wrong("outputs are NULL", call.outputs == nullptr, last());
  if ((call.loss != nullptr) != last()) return wrong("loss is there", call.loss != nullptr, last());
  if (m == 1)
    if (const int answer = make_trouble(); answer != 0) return answer;
  if (!first()) {
    const auto x = read<double>(call.inputs[0], kWidth);
    for (int i = 0; i < kWidth; ++i)
      if (x[i] != input(stage, m, i)) return wrong("an input", x[i], input(stage, m, i));
    const int32_t label = read<int32_t>(call.inputs[1], kLabelWidth).back();
    if (label != 1000 * self_->rank + m) return wrong("a label", label, 1000 * self_->rank + m);
  }
  if (!last()) {
    write(call.outputs[0], outputs(stage, m));
    write(call.outputs[1], std::vector<int32_t>(kLabelWidth, 1000 * (self_->rank + 1) + m));
  }
  for (int i = 0; i < kWidth && last(); ++i) *call.loss += (i + 1) * output(stage, m, i);
  if (alive_[m]) return wrong("forward passes without a backward pass", 2, 1);
  alive_[m] = trains();
  return 0;
}

int Stage::backward(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  const int m = call.instruction->micro_batch;
  const int stage = self_->rank;
  if (!alive_[m]) return wrong("a backward pass before its forward pass, micro-batch", m, -1);
  alive_[m] = false;
  if ((call.output_grads == nullptr) != last()) return wrong("output_grads are there", 0, 1);
  if ((call.input_grads == nullptr) != first()) return wrong("input_grads are there", 0, 1);
  if (call.output_grads && call.output_grads[1]) return wrong("integers have a gradient", 1, 0);
  const std::vector<double> none(kWidth);
  const auto x = first() ? none : read<double>(call.inputs[0], kWidth);
  const auto y = last() ? none : read<double>(call.outputs[0], kWidth);
  auto grads = last() ? none : read<double>(call.output_grads[0], kWidth);
  for (int i = 0; i < kWidth; ++i) {
    if (!first() && x[i] != input(stage, m, i))
      return wrong("an input at backward", x[i], input(stage, m, i));
    if (!last() && y[i] != output(stage, m, i))
      return wrong("an output at backward", y[i], output(stage, m, i));
    if (last()) grads[i] = i + 1;
    if (!alone() && grads[i] != gradient(stage, i)) return wrong("a gradient", grads[i], gradient(stage, i));
    grads[i] *= scale(stage);
  }
  if (!first()) write(call.input_grads[0], grads);
  return 0;
}

int Stage::close_step(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  if (call.inputs || call.outputs || call.instruction->micro_batch != -1)
    return wrong("a micro-batch at the end", 1, 0);
  return 0;
}

// A callback may use other communicators.
int Stage::reduce(const dsc_pipe_call_t& call) {
  int32_t one = 1, sum = 0;
  if (dsc_all_reduce(self_->world, &one, &sum, 1, DSC_DTYPE_I32, DSC_OP_SUM, nullptr, nullptr) != DSC_OK ||
      sum != self_->size)
    return wrong("a sum inside", sum, self_->size);
  return close_step(call);
}

int Stage::check_counts(int runs) const {
  const auto count = [&](int op) {
    const auto found = calls_.find(op);
    return found == calls_.end() ? 0 : found->second;
  };
  const int each = runs * layout_.micro_batches;
  const int closing = trains() ? runs : 0;
  CHECK(self_, count(DSC_PIPE_FORWARD) == each);
  CHECK(self_, count(DSC_PIPE_BACKWARD) == (trains() ? each : 0));
  CHECK(self_, count(DSC_PIPE_LOAD_MICRO_BATCH) == (first() || last() ? each : 0));
  CHECK(self_, count(DSC_PIPE_REDUCE_GRADS) == closing);
  CHECK(self_, count(DSC_PIPE_OPTIMIZER_STEP) == closing);
  CHECK(self_, count(DSC_PIPE_REDUCE_TIED_GRADS) == (alone() ? 0 : closing));
  return 0;
}

int split_off(rank_t* self, dsc_comm_t** comm) {
  CHECK_OK(self, dsc_comm_split(self->world, 0, self->rank, nullptr, comm));
  return 0;
}

}  // namespace pipe
