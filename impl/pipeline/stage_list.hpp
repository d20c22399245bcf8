// Makes the instructions of one stage from the common order of all stages, and assigns a buffer to every
// micro-batch in progress.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "pipeline/global_order.hpp"
#include "pipeline/ir.hpp"

namespace dsc {

// Collects the instructions of one stage from the common order.
class StageList final : public OrderListener {
 public:
  StageList(const PipelinePlan& plan, int32_t stage);

  void compute(int32_t stage, const Compute& op) override;
  void activation(int32_t from_part, int32_t micro_batch) override;
  void gradient(int32_t from_part, int32_t micro_batch) override;

  // Adds the instructions that end a batch.
  void close();

  std::vector<Instruction> take() { return std::move(list_); }
  std::vector<StepView> take_steps() { return std::move(steps_); }
  int32_t buffers() const noexcept { return n_buffers_; }

 private:
  // A micro-batch in a chunk: its buffer, and how many operations and messages still need it.
  struct Slot {
    int32_t buffer = -1;
    int32_t users = 0;
  };

  Slot& slot(int32_t chunk, int32_t micro_batch);
  bool holds(int32_t part) const;
  void add(PipeOp op, int32_t chunk, int32_t micro_batch, int32_t peer = -1);
  void forward(int32_t part, const Compute& op);
  void backward(int32_t part, const Compute& op);
  void begin_step(const Compute& op);
  void take_next_event();
  void occupy(int32_t part, int32_t micro_batch);
  void check_given() const;
  void take_given(int32_t buffer, int32_t micro_batch);
  void release(int32_t part, int32_t micro_batch);

  const Placement placement_;
  const int32_t stage_;
  const int32_t micro_batches_;
  const bool forward_only_;
  // Null if the plan has no program; steps and buffers are then chosen here.
  const StageProgram* const given_;
  size_t position_ = 0;   // index of the next event in given_
  bool in_pair_ = false;  // the first of two overlapping operations has been added
  int64_t step_ = 0;
  int32_t given_buffer_ = -1;
  std::vector<bool> in_use_;  // which buffers are in use; needed only if the program chooses them
  std::vector<StepView> steps_;
  int32_t n_buffers_ = 0;
  std::vector<int32_t> free_;
  std::vector<Slot> slots_;
  std::vector<Instruction> list_;
};

}  // namespace dsc
