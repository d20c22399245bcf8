// Where the activations and gradients of a stage lie in its memory: a slot per buffer, and in it an area per
// end and direction, which travels as one message.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/tensor.hpp"
#include "pipeline_run/actions.hpp"
#include "pipeline_run/needs.hpp"

namespace dsc {

struct PipeShapes {
  std::vector<Tensor> inputs;   // what one micro-batch brings from the previous stage
  std::vector<Tensor> outputs;  // what it gives to the next one
  void* stream = nullptr;       // of the device that they are on, null for its default one

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
  // Throws INVALID_ARG when the shapes do not fit what the schedule sends and receives.
  StageLayout(const Comm& comm, const PipeShapes& shapes, const PipeNeeds& needs, const ScheduleSpec& spec,
              int32_t buffers);

  size_t bytes() const noexcept { return slot_bytes_ * slots_; }
  void place(std::byte* memory);  // bytes() of it

  PipeBuffers buffers(int32_t slot) const noexcept;  // of -1: none
  // What a send or receive moves.
  PipeArea area(const Instruction& instruction) const noexcept;

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

  size_t slots_ = 0;
  size_t slot_bytes_ = 0;
  std::byte* memory_ = nullptr;
  End inputs_, outputs_, output_grads_, input_grads_;
};

}  // namespace dsc
