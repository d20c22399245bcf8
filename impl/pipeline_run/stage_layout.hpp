// The layout of a stage's activations and gradients in memory: one slot per buffer. A slot has one area per
// end and direction, which is sent as one message. Neighbouring chunks on one stage share memory: the later
// chunk reads the outputs of the earlier one, and the earlier one reads the gradients of the later one's
// inputs.
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
  std::vector<Tensor> outputs;  // tensors that it passes to the next stage
  void* stream = nullptr;       // stream of their device; null for its default stream
  bool are_variable = false;    // then the shapes are the largest allowed ones
  bool keeps_replaced = false;  // keep memory of earlier runs that this run replaces
  void* memory = nullptr;       // memory of the caller for all of them; null: the library allocates it
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

// Computes sizes first; assign_memory() then assigns addresses.
class StageLayout {
 public:
  StageLayout() = default;
  // Throws INVALID_ARG if the shapes do not match what the schedule moves. Without a communicator it does not
  // check whether the tensors are supported.
  StageLayout(const Comm* comm, const PipeShapes& shapes, const PipeNeeds& needs, const PipelinePlan& plan,
              int32_t stage, int32_t buffers);

  size_t bytes() const noexcept { return slot_bytes_ * slots_; }
  size_t bytes_anywhere() const noexcept;  // includes the loss for alignment of any start address
  void assign_memory(std::byte* memory);   // requires bytes() of memory
  // Returns the first address in the memory that is suitable for assign_memory(). Throws INVALID_ARG if the
  // memory is too small.
  std::byte* fit_into(void* memory, size_t bytes) const;

  // Returns the buffers of a forward or backward pass, and none for other operations. Also records which
  // buffer holds the micro-batch.
  PipeBuffers buffers(const Instruction& instruction);
  // Returns what a send or receive moves, with one message per area.
  void areas(const Instruction& instruction, std::vector<PipeArea>& found) const;

  // Variable shapes: assigns the sizes that a forward pass wrote to its buffer. Throws INVALID_ARG.
  void take_output_shapes(const Instruction& instruction);
  // Returns the activations of a message. For a receive, the sizes are first written to input_sizes() and
  // then assigned by take_input_shapes().
  std::span<const Tensor> activations(const Instruction& instruction) const noexcept;
  int64_t* const* input_sizes() const noexcept { return input_shapes_.sizes(); }
  void take_input_shapes(const Instruction& instruction);

 private:
  // The tensors of one end in one direction. A tensor without an offset has no gradient.
  struct End {
    bool exists = false;
    size_t start = 0;  // offset in the slot
    size_t bytes = 0;
    std::vector<size_t> offsets;  // offset of each tensor from `start`
    std::vector<void*> pointers;  // slot after slot
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
