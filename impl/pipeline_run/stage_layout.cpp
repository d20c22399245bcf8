#include "pipeline_run/stage_layout.hpp"

#include <memory>

#include "base/error.hpp"
#include "base/joined.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr size_t kAlign = 128;  // keeps different tensors in different cache lines
constexpr size_t kNoOffset = SIZE_MAX;

size_t aligned(size_t bytes) {
  if (__builtin_add_overflow(bytes, kAlign - 1, &bytes))
    fail(DSC_ERR_OVERFLOW, "the activations of a micro-batch do not fit the address space");
  return bytes / kAlign * kAlign;
}

// Checks a list of input or output tensors. `is_used` is true if a chunk of the stage exchanges this data
// with another part. The list must be empty if it is false, and must not be empty if it is true.
void check_end(const Comm* comm, const char* name, const std::vector<Tensor>& tensors, bool is_used,
               const std::optional<Instruction>& message, int32_t stage) {
  if (is_used && tensors.empty() && message)
    fail(DSC_ERR_INVALID_ARG,
         "%s is empty, but stage %d has %s with stage %d; list the tensors of this message", name, stage,
         pipe_op_name(message->op), message->peer);
  if (is_used && tensors.empty())
    fail(DSC_ERR_INVALID_ARG,
         "%s is empty, but data flows between chunks of stage %d; list the tensors of this data", name,
         stage);
  if (!is_used && !tensors.empty())
    fail(DSC_ERR_INVALID_ARG, "%s lists %zu tensors, expected none: stage %d exchanges no such tensors", name,
         tensors.size(), stage);
  check_tensors(tensors);
  if (!comm) return;
  if (const auto problem = first_problem(*comm, tensors, false))
    fail(problem->code, "%s: %s", name, problem->text.c_str());
}

void check_variable(const char* name, const std::vector<Tensor>& tensors) {
  if (tensors.size() > UINT16_MAX)
    fail(DSC_ERR_INVALID_ARG, "%s lists %zu tensors, expected at most %d with variable shapes", name,
         tensors.size(), UINT16_MAX);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].has_shape)
      fail(DSC_ERR_INVALID_ARG,
           "%s: %s has no shape, expected the largest shape: options->variable_shapes is 1", name,
           label(tensors[i].name, i).c_str());
}

// Which kinds of data flow into, out of and between the chunks of a stage.
struct Ends {
  bool has_inputs = false, has_outputs = false;
  bool has_neighbours = false;  // the output of one chunk is the input of another one
};

Ends ends_of(const Placement& placement, int32_t stage) {
  Ends ends;
  for (int32_t chunk = 0; chunk < placement.chunks(); ++chunk) {
    const int32_t part = placement.part(stage, chunk);
    ends.has_inputs = ends.has_inputs || placement.has_input(part);
    ends.has_outputs = ends.has_outputs || placement.has_output(part);
    if (placement.has_output(part) && placement.stage(part + 1) == stage) ends.has_neighbours = true;
  }
  return ends;
}

void check_memory(const PipeShapes& shapes) {
  const int32_t in = shapes.inputs.empty() ? shapes.outputs.empty() ? -1 : shapes.outputs[0].device
                                           : shapes.inputs[0].device;
  const int32_t out = shapes.outputs.empty() ? in : shapes.outputs[0].device;
  if (in != out)
    fail(DSC_ERR_INVALID_ARG,
         "options->inputs are on device %d and options->outputs on device %d, expected the same device", in,
         out);
  const bool alone = shapes.inputs.empty() && shapes.outputs.empty();
  if (in < 0 && shapes.stream && !alone)
    fail(DSC_ERR_UNSUPPORTED, "options->stream is not NULL, expected NULL: the tensors are in host memory");
}

}  // namespace

std::string describe(const std::vector<Tensor>& tensors) {
  if (tensors.empty()) return "nothing";
  return joined(tensors, ", ", [](const Tensor& tensor) { return describe(tensor); });
}

StageLayout::StageLayout(const Comm* comm, const PipeShapes& shapes, const PipeNeeds& needs,
                         const PipelinePlan& plan, int32_t stage, int32_t buffers)
    : placement_(plan.placement),
      stage_(stage),
      micro_batches_(static_cast<size_t>(plan.spec.micro_batches)),
      trains_(!plan.spec.forward_only),
      is_variable_(shapes.are_variable),
      slot_of_(static_cast<size_t>(placement_.chunks()) * micro_batches_, -1),
      slots_(static_cast<size_t>(buffers)) {
  const Ends ends = ends_of(placement_, stage);
  check_end(comm, "options->inputs", shapes.inputs, ends.has_inputs, needs.first(PipeOp::kRecvActivation),
            stage);
  check_end(comm, "options->outputs", shapes.outputs, ends.has_outputs, needs.first(PipeOp::kSendActivation),
            stage);
  check_memory(shapes);
  if (is_variable_) check_variable("options->inputs", shapes.inputs);
  if (is_variable_) check_variable("options->outputs", shapes.outputs);
  const std::string in = describe(shapes.inputs), out = describe(shapes.outputs);
  if (ends.has_neighbours && in != out)
    fail(DSC_ERR_INVALID_ARG,
         "options->inputs are %.160s and options->outputs are %.160s, expected the same: data flows between "
         "chunks of stage %d",
         in.c_str(), out.c_str(), stage);
  if (needs.has(PipeOp::kRecvActivation)) add(inputs_, shapes.inputs, false);
  if (ends.has_outputs) add(outputs_, shapes.outputs, false);
  if (needs.has(PipeOp::kRecvGrad)) add(output_grads_, shapes.outputs, true);
  if (ends.has_inputs && trains_) add(input_grads_, shapes.inputs, true);
  size_t total = 0;
  if (__builtin_mul_overflow(slot_bytes_, slots_, &total) || total > SIZE_MAX - kAlign)
    fail(DSC_ERR_OVERFLOW, "%zu buffers of %zu bytes do not fit the address space", slots_, slot_bytes_);
  input_shapes_ = {shapes.inputs, slots_, is_variable_};
  output_shapes_ = {shapes.outputs, slots_, is_variable_};
}

// Adds tensors, or their gradients, to the layout of a slot. Integer tensors have no gradients and take no
// memory for them.
void StageLayout::add(End& end, const std::vector<Tensor>& tensors, bool gradients) {
  end.exists = true;
  end.start = slot_bytes_;
  for (const Tensor& tensor : tensors) {
    const bool has_offset = !gradients || is_floating(tensor.dtype);
    end.offsets.push_back(has_offset ? end.bytes : kNoOffset);
    if (has_offset && __builtin_add_overflow(end.bytes, aligned(tensor.bytes()), &end.bytes))
      fail(DSC_ERR_OVERFLOW, "the activations of a micro-batch do not fit the address space");
  }
  if (__builtin_add_overflow(slot_bytes_, end.bytes, &slot_bytes_))
    fail(DSC_ERR_OVERFLOW, "the activations of a micro-batch do not fit the address space");
}

void StageLayout::assign_memory(std::byte* memory) {
  memory_ = memory;
  for (End* end : {&inputs_, &outputs_, &output_grads_, &input_grads_}) {
    end->pointers.clear();
    if (!end->exists) continue;
    for (size_t slot = 0; slot < slots_; ++slot)
      for (const size_t offset : end->offsets)
        end->pointers.push_back(offset == kNoOffset ? nullptr
                                                    : memory + slot * slot_bytes_ + end->start + offset);
  }
  assign_memory(inputs_, input_shapes_);
  assign_memory(outputs_, output_shapes_);
}

void StageLayout::assign_memory(const End& end, EndShapes& shapes) {
  for (size_t i = 0; i < end.pointers.size(); ++i)
    shapes.set_data(i / end.offsets.size(), i % end.offsets.size(), static_cast<std::byte*>(end.pointers[i]));
}

size_t StageLayout::bytes_anywhere() const noexcept { return bytes() == 0 ? 0 : bytes() + kAlign - 1; }

std::byte* StageLayout::fit_into(void* memory, size_t bytes) const {
  if (this->bytes() == 0) return nullptr;
  // The check always includes the largest possible number of bytes that are skipped for alignment. Otherwise
  // success would depend on the address of the memory.
  if (bytes < bytes_anywhere())
    fail(DSC_ERR_INVALID_ARG,
         "options->memory has %zu bytes, expected at least %zu, the size that dsc_pipe_run_bytes() returns",
         bytes, bytes_anywhere());
  void* start = memory;
  return static_cast<std::byte*>(std::align(kAlign, this->bytes(), start, bytes));
}

void* const* StageLayout::End::row(int32_t slot) const noexcept {
  return exists ? pointers.data() + static_cast<size_t>(slot) * offsets.size() : nullptr;
}

int32_t& StageLayout::slot_of(int32_t part, int32_t micro_batch) {
  return slot_of_[static_cast<size_t>(placement_.chunk(part)) * micro_batches_ +
                  static_cast<size_t>(micro_batch)];
}

PipeBuffers StageLayout::buffers(const Instruction& it) {
  if (it.buffer < 0) return {};
  const int32_t part = placement_.part(stage_, it.chunk);
  const int32_t m = it.micro_batch;
  slot_of(part, m) = it.buffer;
  if (it.op == PipeOp::kLoadMicroBatch) return {};  // its inputs may not have been received yet
  const bool is_backward = it.op != PipeOp::kForward;
  PipeBuffers found;
  if (placement_.has_input(part)) {
    const int32_t shared = is_here(part - 1) ? slot_of(part - 1, m) : -1;
    found.inputs = shared >= 0 ? outputs_.row(shared) : inputs_.row(it.buffer);
    found.input_tensors = shared >= 0 ? output_shapes_.row(shared) : input_shapes_.row(it.buffer);
    if (trains_) found.input_grads = input_grads_.row(it.buffer);
  }
  if (placement_.has_output(part)) {
    found.outputs = outputs_.row(it.buffer);
    if (is_variable_ && !is_backward) output_shapes_.reset(it.buffer);
    if (it.op == PipeOp::kForward) found.output_shapes = output_shapes_.sizes();
    found.output_tensors = output_shapes_.row(it.buffer);
    if (trains_ && !is_here(part + 1)) found.output_grads = output_grads_.row(it.buffer);
    if (trains_ && is_here(part + 1) && is_backward)
      found.output_grads = input_grads_.row(slot_of(part + 1, m));
  }
  return found;
}

const StageLayout::End& StageLayout::end_of(PipeOp message) const noexcept {
  return message == PipeOp::kRecvActivation   ? inputs_
         : message == PipeOp::kSendActivation ? outputs_
         : message == PipeOp::kRecvGrad       ? output_grads_
                                              : input_grads_;
}

// Returns the activations that a message belongs to. A gradient has the shape of its activation.
std::span<const Tensor> StageLayout::activations(const Instruction& instruction) const noexcept {
  const bool is_input = instruction.op == PipeOp::kRecvActivation || instruction.op == PipeOp::kSendGrad;
  return (is_input ? input_shapes_ : output_shapes_).row(instruction.buffer);
}

void StageLayout::areas(const Instruction& instruction, std::vector<PipeArea>& found) const {
  found.clear();
  const End& end = end_of(instruction.op);
  std::byte* const start = memory_ + static_cast<size_t>(instruction.buffer) * slot_bytes_ + end.start;
  if (!is_variable_) return found.push_back({start, end.bytes});
  const auto tensors = activations(instruction);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (end.offsets[i] != kNoOffset && tensors[i].count > 0)
      found.push_back({start + end.offsets[i], tensors[i].bytes()});
}

void StageLayout::take_output_shapes(const Instruction& instruction) {
  output_shapes_.take(instruction.buffer, "output");
}

void StageLayout::take_input_shapes(const Instruction& instruction) {
  input_shapes_.take(instruction.buffer, "input");
}

}  // namespace dsc
