// The memory layout of a stage's activations and gradients. There is one slot per buffer. A slot has an area
// for each of inputs, outputs and their gradients; an area is sent as one message. Two neighboring chunks on
// the same stage share memory. The later chunk reads its inputs from the outputs of the earlier one. The
// earlier chunk reads its output gradients from the input gradients of the later one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/tensor.hpp"
#include "pipeline/plan.hpp"
#include "pipeline_run/actions.hpp"
#include "pipeline_run/end_shapes.hpp"
#include "pipeline_run/needs.hpp"

namespace dsc {

// The tensors of a run, and their memory.
struct PipeShapes {
  std::vector<Tensor> inputs;   // tensors that one micro-batch receives from the previous stage
  std::vector<Tensor> outputs;  // tensors that one micro-batch passes to the next stage
  void* stream = nullptr;       // stream of the tensors' device; null means its default stream
  bool are_variable = false;    // shapes may vary, and the given ones are the largest
  bool keeps_replaced = false;  // keep the memory of earlier runs even if this run replaces it
  // User-provided memory for all tensors; null if the library allocates it.
  void* memory = nullptr;
  size_t memory_bytes = 0;

  bool on_device() const noexcept {
    return (!inputs.empty() && inputs[0].device >= 0) || (!outputs.empty() && outputs[0].device >= 0);
  }
};

// Returns a text such as "f32 [32, 10], i32 [4]".
std::string describe(const std::vector<Tensor>& tensors);

// Memory that is sent as one message.
struct PipeArea {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// The constructor computes sizes; assign_memory() then assigns addresses.
class StageLayout {
 public:
  StageLayout() = default;
  // Throws INVALID_ARG if the shapes do not match the messages of the schedule. Without a communicator, it is
  // not checked whether the tensors are supported.
  StageLayout(const Comm* comm, const PipeShapes& shapes, const PipeNeeds& needs, const PipelinePlan& plan,
              int32_t stage, int32_t buffers);

  size_t bytes() const noexcept { return slot_bytes_ * slots_; }
  size_t bytes_anywhere() const noexcept;  // enough for memory with any start address
  void assign_memory(std::byte* memory);   // the memory must have bytes() bytes
  // Returns the first aligned address in the memory, which can be passed to assign_memory(). Throws
  // INVALID_ARG if the memory is too small.
  std::byte* fit_into(void* memory, size_t bytes) const;

  // Returns the buffers of a forward or backward pass, and no buffers for other operations. Also records
  // which buffer holds the instruction's micro-batch.
  PipeBuffers buffers(const Instruction& instruction);
  // Returns the areas that a send or receive transfers. Each area is one message.
  void areas(const Instruction& instruction, std::vector<PipeArea>& found) const;

  // With variable shapes, assigns the sizes that a forward pass wrote to the buffer of its output. Throws
  // INVALID_ARG if they are too large.
  void take_output_shapes(const Instruction& instruction);
  // Returns the activations of a message. Before a receive, their sizes are written to input_sizes() and
  // assigned by take_input_shapes().
  std::span<const Tensor> activations(const Instruction& instruction) const noexcept;
  int64_t* const* input_sizes() const noexcept { return input_shapes_.sizes(); }
  void take_input_shapes(const Instruction& instruction);

 private:
  // One kind of tensors: inputs, outputs, or the gradients of either. An integer tensor has no gradient, and
  // therefore no offset among the gradients.
  struct End {
    bool exists = false;
    size_t start = 0;  // offset in the slot
    size_t bytes = 0;
    std::vector<size_t> offsets;  // offset of each tensor from `start`
    std::vector<void*> pointers;  // addresses for slot 0, then those for slot 1, and so on
    void* const* row(int32_t slot) const noexcept;
  };
  void add(End& end, const std::vector<Tensor>& tensors, bool gradients);
  void assign_memory(const End& end, EndShapes& shapes);
  const End& end_of(PipeOp message) const noexcept;
  int32_t& slot_of(int32_t part, int32_t micro_batch);
  bool is_here(int32_t part) const noexcept { return placement_.stage(part) == stage_; }

  Placement placement_{1, 1, PlacementShape::kLoop};
  int32_t stage_ = 0;
  size_t micro_batches_ = 0;
  bool trains_ = true;
  bool is_variable_ = false;
  std::vector<int32_t> slot_of_;  // by chunk and micro-batch
  size_t slots_ = 0;
  size_t slot_bytes_ = 0;
  std::byte* memory_ = nullptr;
  End inputs_, outputs_, output_grads_, input_grads_;
  EndShapes input_shapes_, output_shapes_;
};

}  // namespace dsc
