#include "pipeline_run/stage_layout.hpp"

#include "base/error.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr size_t kAlign = 128;  // also keeps what two ranks touch on different cache lines
constexpr size_t kNoPlace = SIZE_MAX;

size_t aligned(size_t bytes) {
  if (__builtin_add_overflow(bytes, kAlign - 1, &bytes))
    fail(DSC_ERR_OVERFLOW, "the activations of a micro-batch are larger than any memory");
  return bytes / kAlign * kAlign;
}

// One end's shapes must be given exactly when the schedule uses that end.
void check_end(const Comm& comm, const char* name, const std::vector<Tensor>& tensors,
               const std::optional<Instruction>& use, int32_t stage) {
  if (use && tensors.empty())
    fail(DSC_ERR_INVALID_ARG, "%s is empty, but stage %d has %s with stage %d: list its tensors", name, stage,
         pipe_op_name(use->op), use->peer);
  if (!use && !tensors.empty())
    fail(DSC_ERR_INVALID_ARG, "%s lists %zu tensors, expected none: stage %d exchanges nothing there", name,
         tensors.size(), stage);
  check_tensors(tensors);
  if (const auto problem = first_problem(comm, tensors, false))
    fail(problem->code, "%s: %s", name, problem->text.c_str());
}

void check_places(const PipeShapes& shapes) {
  const int32_t in = shapes.inputs.empty() ? shapes.outputs.empty() ? -1 : shapes.outputs[0].device
                                           : shapes.inputs[0].device;
  const int32_t out = shapes.outputs.empty() ? in : shapes.outputs[0].device;
  if (in != out)
    fail(DSC_ERR_INVALID_ARG, "device of the inputs is %d, that of the outputs %d; expected the same", in,
         out);
  const bool alone = shapes.inputs.empty() && shapes.outputs.empty();
  if (in < 0 && shapes.stream && !alone)
    fail(DSC_ERR_UNSUPPORTED, "stream is not NULL, expected NULL: the tensors are in host memory");
}

}  // namespace

std::string describe(const std::vector<Tensor>& tensors) {
  std::string text;
  for (const Tensor& tensor : tensors) text += (text.empty() ? "" : ", ") + describe(tensor);
  return text.empty() ? "nothing" : text;
}

StageLayout::StageLayout(const Comm& comm, const PipeShapes& shapes, const PipeNeeds& needs,
                         const ScheduleSpec& spec, int32_t buffers)
    : slots_(static_cast<size_t>(buffers)) {
  check_end(comm, "inputs", shapes.inputs, needs.first(PipeOp::kRecvActivation), spec.stage);
  check_end(comm, "outputs", shapes.outputs, needs.first(PipeOp::kSendActivation), spec.stage);
  check_places(shapes);
  if (needs.has(PipeOp::kRecvActivation)) add(inputs_, shapes.inputs, false);
  if (needs.has(PipeOp::kSendActivation)) add(outputs_, shapes.outputs, false);
  if (needs.has(PipeOp::kRecvGrad)) add(output_grads_, shapes.outputs, true);
  if (needs.has(PipeOp::kSendGrad)) add(input_grads_, shapes.inputs, true);
  size_t total = 0;
  if (__builtin_mul_overflow(slot_bytes_, slots_, &total))
    fail(DSC_ERR_OVERFLOW, "%zu buffers of %zu bytes are larger than any memory", slots_, slot_bytes_);
}

// Integer tensors have no gradient.
void StageLayout::add(End& end, const std::vector<Tensor>& tensors, bool gradients) {
  end.exists = true;
  end.start = slot_bytes_;
  for (const Tensor& tensor : tensors) {
    const bool has_place = !gradients || is_floating(tensor.dtype);
    end.places.push_back(has_place ? end.bytes : kNoPlace);
    if (has_place && __builtin_add_overflow(end.bytes, aligned(tensor.bytes()), &end.bytes))
      fail(DSC_ERR_OVERFLOW, "the activations of a micro-batch are larger than any memory");
  }
  if (__builtin_add_overflow(slot_bytes_, end.bytes, &slot_bytes_))
    fail(DSC_ERR_OVERFLOW, "the activations of a micro-batch are larger than any memory");
}

void StageLayout::place(std::byte* memory) {
  memory_ = memory;
  for (End* end : {&inputs_, &outputs_, &output_grads_, &input_grads_}) {
    end->pointers.clear();
    if (!end->exists) continue;
    for (size_t slot = 0; slot < slots_; ++slot)
      for (const size_t place : end->places)
        end->pointers.push_back(place == kNoPlace ? nullptr
                                                  : memory + slot * slot_bytes_ + end->start + place);
  }
}

void* const* StageLayout::End::row(int32_t slot) const noexcept {
  return exists ? pointers.data() + static_cast<size_t>(slot) * places.size() : nullptr;
}

PipeBuffers StageLayout::buffers(int32_t slot) const noexcept {
  if (slot < 0) return {};
  return {inputs_.row(slot), outputs_.row(slot), output_grads_.row(slot), input_grads_.row(slot), nullptr};
}

PipeArea StageLayout::area(const Instruction& instruction) const noexcept {
  const End& end = instruction.op == PipeOp::kRecvActivation   ? inputs_
                   : instruction.op == PipeOp::kSendActivation ? outputs_
                   : instruction.op == PipeOp::kRecvGrad       ? output_grads_
                                                               : input_grads_;
  return {memory_ + static_cast<size_t>(instruction.buffer) * slot_bytes_ + end.start, end.bytes};
}

}  // namespace dsc
