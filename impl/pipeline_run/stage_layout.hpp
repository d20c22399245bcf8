// Where the activations and gradients of a stage lie in its memory: a slot per buffer, and in it an area per
// end and direction, which travels as one message. Neighbouring chunks on one stage share what flows between
// them: the later one reads the outputs of the earlier one, which in turn reads its gradients.
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

struct PipeShapes {
  std::vector<Tensor> inputs;   // what one micro-batch brings from the previous stage
  std::vector<Tensor> outputs;  // what it gives to the next one
  void* stream = nullptr;       // of the device that they are on, null for its default one
  bool are_variable = false;    // then these are the largest
  bool keeps_replaced = false;  // memory of earlier runs that this one replaces
  void* memory = nullptr;       // the caller's, for all of them; null: the library's
  size_t memory_bytes = 0;

  bool on_device() const noexcept {
    return (!inputs.empty() && inputs[0].device >= 0) || (!outputs.empty() && outputs[0].device >= 0);
  }
};

// "f32 [32, 10], i32 [4]"
std::string describe(const std::vector<Tensor>& tensors);

struct PipeArea {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

class StageLayout {
 public:
  StageLayout() = default;
  // Throws INVALID_ARG when the shapes do not fit what the schedule moves. Without a communicator it is not
  // asked whether it takes such tensors.
  StageLayout(const Comm* comm, const PipeShapes& shapes, const PipeNeeds& needs, const PipelinePlan& plan,
              int32_t stage, int32_t buffers);

  size_t bytes() const noexcept { return slot_bytes_ * slots_; }
  size_t bytes_anywhere() const noexcept;  // with what a start at any address loses
  void place(std::byte* memory);           // bytes() of it
  // The first place in it that is good for place(). Throws INVALID_ARG when there is no room.
  std::byte* fit_into(void* memory, size_t bytes) const;

  // Of a forward or backward pass; of anything else none. Notes in which buffer the micro-batch is.
  PipeBuffers buffers(const Instruction& instruction);
  // What a send or receive moves, one message each.
  void areas(const Instruction& instruction, std::vector<PipeArea>& found) const;

  // Variable shapes: those that a forward pass wrote, from now on those of its buffer. Throws INVALID_ARG.
  void take_output_shapes(const Instruction& instruction);
  // The activations of a message, and for a receive where their sizes are to be written, and taken then.
  std::span<const Tensor> activations(const Instruction& instruction) const noexcept;
  int64_t* const* input_sizes() const noexcept { return input_shapes_.sizes(); }
  void take_input_shapes(const Instruction& instruction);

 private:
  // Tensors of one end in one direction. A tensor without a place has no gradient.
  struct End {
    bool exists = false;
    size_t start = 0;  // in the slot
    size_t bytes = 0;
    std::vector<size_t> places;   // offset of each tensor from start
    std::vector<void*> pointers;  // slot after slot
    void* const* row(int32_t slot) const noexcept;
  };
  void add(End& end, const std::vector<Tensor>& tensors, bool gradients);
  void place(const End& end, EndShapes& shapes);
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
