#include "pipe_stage.hpp"

#include <pthread.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <vector>

extern "C" {
#include "gpu.h"
}

namespace pipe {
namespace {

// Returns the elements of a callback's tensor, in host or device memory.
template <typename T>
std::vector<T> read(const void* tensor, int count) {
  std::vector<T> values(static_cast<size_t>(count));
  const size_t bytes = values.size() * sizeof(T);
  if (bytes == 0) return values;
  if (gpu_wanted())
    gpu_download(values.data(), tensor, bytes);
  else
    std::memcpy(values.data(), tensor, bytes);
  return values;
}

template <typename T>
void write(void* tensor, const std::vector<T>& values) {
  const size_t bytes = values.size() * sizeof(T);
  if (bytes == 0) return;
  if (gpu_wanted())
    gpu_upload(tensor, values.data(), bytes);
  else
    std::memcpy(tensor, values.data(), bytes);
}

}  // namespace

int Stage::part(int chunk) const {
  const bool back = info.placement == DSC_PIPE_PLACEMENT_ZIGZAG && chunk % 2 == 1;
  return alone() ? parts() - 1 : chunk * self_->size + (back ? self_->size - 1 - self_->rank : self_->rank);
}

bool Stage::has_inputs() const {
  for (int chunk = 0; chunk < info.chunks; ++chunk)
    if (!first(part(chunk))) return true;
  return false;
}

bool Stage::has_outputs() const {
  for (int chunk = 0; chunk < info.chunks; ++chunk)
    if (!last(part(chunk))) return true;
  return false;
}

double Stage::input(int part, int micro_batch, int i) const {
  return part == 0 || alone() ? micro_batch + 0.25 * i : output(part - 1, micro_batch, i);
}

int Stage::rows(int part, int micro_batch) const {
  return layout_.variable ? (part + micro_batch) % (kMostRows + 1) : 1;
}

std::vector<double> Stage::outputs(int part, int micro_batch) const {
  std::vector<double> values;
  for (int i = 0; i < width(part, micro_batch); ++i) values.push_back(output(part, micro_batch, i));
  return values;
}

// The loss of the last part is the sum over i of (i + 1) times output i.
double Stage::gradient(int part, int i) const {
  return part == parts() - 1 ? i + 1 : gradient(part + 1, i) * scale(part + 1);
}

double Stage::expected_mean() const {
  double sum = 0;
  for (int m = 0; m < layout_.micro_batches; ++m)
    for (int i = 0; i < kWidth; ++i) sum += (i + 1) * output(parts() - 1, m, i);
  return sum / layout_.micro_batches;
}

// Returns the status of a callback that found a wrong value: 99. It returns 98 if the value may be wrong only
// because the communicator has failed: a stage on a device then continues with invalid data until its next
// message.
int Stage::wrong(const char* what, double came, double expected) {
  dsc_error_info_t info{};
  info.struct_size = sizeof info;
  if (gpu_wanted() && dsc_comm_error_info(comm_, &info) == DSC_OK && info.revoked == 1) return 98;
  char text[200];
  std::snprintf(text, sizeof text, "%s of %s is %g, expected %g", what, layout_.name, came, expected);
  problem = text;
  return 99;
}

int Stage::read_again() {
  size_t bytes = 0;
  CHECK_OK(self_, dsc_pipe_schedule_export(schedule, layout_.read_as, nullptr, 0, &bytes));
  std::string text(bytes, '\0');
  CHECK_OK(self_, dsc_pipe_schedule_export(schedule, layout_.read_as, text.data(), bytes, &bytes));
  CHECK_OK(self_, dsc_pipe_schedule_destroy(schedule));
  dsc_pipe_schedule_options_t only_stage;
  dsc_pipe_schedule_options_init(&only_stage, sizeof only_stage);
  only_stage.stage = self_->rank;
  CHECK_OK(self_, dsc_pipe_schedule_import(text.data(), bytes - 1, layout_.read_as, &only_stage, &schedule));
  return 0;
}

int Stage::prepare() {
  dsc_pipe_schedule_options_init(&schedule_options, sizeof schedule_options);
  schedule_options.name = layout_.name;
  schedule_options.stages = self_->size;
  schedule_options.stage = self_->rank;
  schedule_options.micro_batches = layout_.micro_batches;
  schedule_options.chunks = layout_.chunks;
  schedule_options.forward_only = layout_.forward_only ? 1 : 0;
  schedule_options.messages = layout_.messages;
  CHECK_OK(self_, dsc_pipe_schedule_create(&schedule_options, &schedule));
  if (layout_.read_as != 0) PASS_ON(read_again());
  info.struct_size = sizeof info;
  CHECK_OK(self_, dsc_pipe_schedule_info(schedule, &info));
  callbacks.struct_size = sizeof callbacks;
  callbacks.context = this;
  callbacks.load_micro_batch = enter<&Stage::load>;
  callbacks.forward = enter<&Stage::forward>;
  callbacks.backward = enter<&Stage::backward>;
  callbacks.backward_input = enter<&Stage::backward>;
  callbacks.backward_weight = enter<&Stage::backward_weight>;
  callbacks.reduce_tied_grads = enter<&Stage::close_step>;
  callbacks.reduce_grads = enter<&Stage::reduce>;
  callbacks.optimizer_step = enter<&Stage::close_step>;
  const int32_t device = gpu_wanted() ? self_->options.device : -1;
  tensors[0] = {sizeof(dsc_tensor_t), nullptr, shape, "x", kWidth, DSC_DTYPE_F64, 2, device, 0};
  tensors[1] = {sizeof(dsc_tensor_t), nullptr, label_shape, nullptr, kLabelWidth,
                DSC_DTYPE_I32,        1,       device,      0};
  if (layout_.variable) shape[0] = kMostRows, tensors[0].count = kMostRows * kWidth;
  dsc_pipe_run_options_init(&options, sizeof options);
  options.variable_shapes = layout_.variable ? 1 : 0;
  options.inputs = has_inputs() ? tensors : nullptr;
  options.n_inputs = has_inputs() ? 2 : 0;
  options.outputs = has_outputs() ? tensors : nullptr;
  options.n_outputs = has_outputs() ? 2 : 0;
  return 0;
}

dsc_result_t Stage::run(double* mean) {
  double unread = 0;  // makes all ranks meet at the end, so that all of them learn of a failure
  return dsc_pipe_run(schedule, comm_, &callbacks, &options, mean ? mean : &unread);
}

int Stage::load(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  const int p = part(call.instruction->chunk);
  if (call.inputs || call.outputs || call.n_inputs + call.n_outputs > 0)
    return wrong("load_micro_batch with tensors", 1, 0);
  return first(p) || last(p) ? 0 : wrong("load_micro_batch on a part in the middle: part", p, -1);
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
      for (const int64_t end = now_ms() + 50'000; now_ms() < end;) {
        const timespec moment{0, 1'000'000};
        ::nanosleep(&moment, nullptr);
        dsc_error_info_t info{};
        info.struct_size = sizeof info;
        dsc_comm_error_info(comm_, &info);
        if (info.revoked) return 0;  // the other ranks have given up on this rank
      }
      return wrong("seconds of sleep", 50, 0);
    case Trouble::kCancels:
      pthread_cancel(pthread_self());
      pthread_testcancel();
      return wrong("a canceled thread", 1, 0);
    case Trouble::kDestroysSchedule:
      return dsc_pipe_schedule_destroy(schedule);
    case Trouble::kDestroysComm:
      return dsc_comm_destroy(comm_);
    default:
      return 0;
  }
}

int Stage::expect_tensor(const dsc_tensor_t& tensor, const void* data, int index, int rows) {
  const dsc_tensor_t& given = tensors[index];
  if (tensor.struct_size != sizeof tensor) return wrong("struct_size", 0, sizeof tensor);
  if (tensor.data != data) return wrong("data of a tensor is there", tensor.data != nullptr, data != nullptr);
  if (tensor.dtype != given.dtype || tensor.ndim != given.ndim)
    return wrong("dtype", tensor.dtype, given.dtype);
  if (!layout_.variable && tensor.shape != given.shape) return wrong("the shape that was given", 0, 1);
  const int64_t columns = index == 0 ? tensor.shape[1] : 1;
  const size_t count = layout_.variable ? static_cast<size_t>(rows * columns) : given.count;
  if (tensor.count != count)
    return wrong("elements", static_cast<double>(tensor.count), static_cast<double>(count));
  if (layout_.variable && tensor.shape[0] != rows)
    return wrong("rows", static_cast<double>(tensor.shape[0]), rows);
  return 0;
}

// The forward pass gets outputs of the largest shape. All other passes get the shapes that the forward pass
// has set.
int Stage::check_shapes(const dsc_pipe_call_t& call) {
  const int m = call.instruction->micro_batch;
  const int p = part(call.instruction->chunk);
  const bool all = call.instruction->op == DSC_PIPE_OP_FORWARD && layout_.variable;
  if (call.n_inputs != (first(p) ? 0 : 2) || call.n_outputs != (last(p) ? 0 : 2))
    return wrong("tensors", static_cast<double>(call.n_inputs + call.n_outputs), 2);
  if ((call.output_shapes != nullptr) != (all && !last(p))) return wrong("shapes to write", 0, 1);
  int answer = 0;
  for (int i = 0; i < 2 && !first(p) && answer == 0; ++i)
    answer =
        expect_tensor(call.input_tensors[i], call.inputs[i], i, i == 0 ? rows(p - 1, m) : label_width(m));
  const int made[2] = {all ? static_cast<int>(shape[0]) : rows(p, m), all ? kLabelWidth : label_width(m)};
  for (int i = 0; i < 2 && !last(p) && answer == 0; ++i)
    answer = expect_tensor(call.output_tensors[i], call.outputs[i], i, made[i]);
  return answer;
}

int Stage::forward(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  const int m = call.instruction->micro_batch;
  const int p = part(call.instruction->chunk);
  if ((call.inputs == nullptr) != first(p)) return wrong("inputs are NULL", call.inputs == nullptr, first(p));
  if ((call.outputs == nullptr) != last(p))
    return wrong("outputs are NULL", call.outputs == nullptr, last(p));
  if ((call.loss != nullptr) != last(p)) return wrong("loss is there", call.loss != nullptr, last(p));
  if (const int answer = check_shapes(call); answer != 0) return answer;
  if (m == 1)
    if (const int answer = make_trouble(); answer != 0) {
      std::snprintf(call.error, call.error_capacity, "out of ink");
      return answer;
    }
  if (!first(p)) {
    const auto x = read<double>(call.inputs[0], width(p - 1, m));
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] != input(p, m, static_cast<int>(i)))
        return wrong("an input", x[i], input(p, m, static_cast<int>(i)));
    for (const int32_t label : read<int32_t>(call.inputs[1], label_width(m)))
      if (label != 1000 * p + m) return wrong("a label", label, 1000 * p + m);
  }
  if (!last(p)) {
    write(call.outputs[0], outputs(p, m));
    write(call.outputs[1], std::vector<int32_t>(label_width(m), 1000 * (p + 1) + m));
    if (layout_.variable) {
      call.output_shapes[0][0] = rows(p, m);
      call.output_shapes[0][1] = kWidth;
      call.output_shapes[1][0] = label_width(m);
    }
  }
  for (int i = 0; i < kWidth && last(p); ++i) *call.loss += (i + 1) * output(p, m, i);
  int& left = alive_[{call.instruction->chunk, m}];
  if (left != 0) return wrong("halves of a backward pass before a forward pass", left, 0);
  left = trains() ? 2 : 0;
  return 0;
}

// The data of a forward pass must be kept until the last half of its backward pass.
int Stage::check_kept(const dsc_pipe_call_t& call) {
  const int m = call.instruction->micro_batch;
  const int p = part(call.instruction->chunk);
  if ((call.output_grads == nullptr) != last(p)) return wrong("output_grads are there", 0, 1);
  if ((call.input_grads == nullptr) != first(p)) return wrong("input_grads are there", 0, 1);
  if (call.output_grads && call.output_grads[1]) return wrong("integers have a gradient", 1, 0);
  if (const int answer = check_shapes(call); answer != 0) return answer;
  const int in = first(p) ? 0 : width(p - 1, m), out = last(p) ? 0 : width(p, m);
  const std::vector<double> none;
  const auto x = first(p) ? none : read<double>(call.inputs[0], in);
  const auto y = last(p) ? none : read<double>(call.outputs[0], out);
  const auto grads = last(p) ? none : read<double>(call.output_grads[0], out);
  for (int i = 0; i < in; ++i)
    if (x[i] != input(p, m, i)) return wrong("an input at backward", x[i], input(p, m, i));
  for (int i = 0; i < out; ++i) {
    if (y[i] != output(p, m, i)) return wrong("an output at backward", y[i], output(p, m, i));
    if (grads[i] != gradient(p, i)) return wrong("a gradient", grads[i], gradient(p, i));
  }
  return 0;
}

int Stage::backward(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  const int p = part(call.instruction->chunk);
  int& left = alive_[{call.instruction->chunk, call.instruction->micro_batch}];
  if (left != 2) return wrong("halves of a backward pass that are left", left, 2);
  left = call.instruction->op == DSC_PIPE_OP_BACKWARD ? 0 : 1;
  if (const int answer = check_kept(call); answer != 0) return answer;
  std::vector<double> grads;
  const int in = first(p) ? 0 : width(p - 1, call.instruction->micro_batch);
  for (int i = 0; i < in; ++i) grads.push_back(gradient(p, i) * scale(p));
  if (!first(p)) write(call.input_grads[0], grads);
  return 0;
}

int Stage::backward_weight(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  int& left = alive_[{call.instruction->chunk, call.instruction->micro_batch}];
  if (left != 1) return wrong("halves of a backward pass that are left", left, 1);
  left = 0;
  return check_kept(call);
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
  const int passes = each * info.chunks;
  int ends = 0;
  for (int chunk = 0; chunk < info.chunks; ++chunk)
    ends += first(part(chunk)) || last(part(chunk)) ? each : 0;
  const int closing = trains() ? runs : 0;
  CHECK(self_, count(DSC_PIPE_OP_FORWARD) == passes);
  CHECK(self_, count(DSC_PIPE_OP_BACKWARD) + count(DSC_PIPE_OP_BACKWARD_INPUT) == (trains() ? passes : 0));
  CHECK(self_, count(DSC_PIPE_OP_BACKWARD_INPUT) == count(DSC_PIPE_OP_BACKWARD_WEIGHT));
  CHECK(self_, count(DSC_PIPE_OP_LOAD_MICRO_BATCH) == ends);
  CHECK(self_, count(DSC_PIPE_OP_REDUCE_GRADS) == closing);
  CHECK(self_, count(DSC_PIPE_OP_OPTIMIZER_STEP) == closing);
  CHECK(self_, count(DSC_PIPE_OP_REDUCE_TIED_GRADS) == (alone() ? 0 : closing));
  return 0;
}

int split_off(rank_t* self, dsc_comm_t** comm) {
  CHECK_OK(self, dsc_comm_split(self->world, 0, self->rank, nullptr, comm));
  return 0;
}

}  // namespace pipe
