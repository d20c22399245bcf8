// The instructions of one stage, taken from the common order, with a buffer for every micro-batch on its way.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/global_order.hpp"
#include "pipeline/ir.hpp"

namespace dsc {

class StageList final : public OrderListener {
 public:
  // `computes`: how many operations this stage's order has.
  StageList(const Placement& placement, int32_t stage, int32_t micro_batches, int64_t computes);

  void compute(int32_t stage, const Compute& op) override;
  void activation(int32_t from_part, int32_t micro_batch) override;
  void gradient(int32_t from_part, int32_t micro_batch) override;

  // Adds what ends a batch.
  void close();

  std::vector<Instruction> take() { return std::move(list_); }
  int32_t buffers() const noexcept { return n_buffers_; }

 private:
  // A micro-batch in a chunk: its buffer, and how many operations and messages still need it.
  struct Place {
    int32_t buffer = -1;
    int32_t users = 0;
  };

  Place& place(int32_t chunk, int32_t micro_batch);
  bool holds(int32_t part) const;
  void add(PipeOp op, int32_t chunk, int32_t micro_batch, int32_t peer = -1);
  void forward(int32_t part, const Compute& op);
  void backward(int32_t part, const Compute& op);
  void occupy(int32_t part, int32_t micro_batch);
  void release(int32_t part, int32_t micro_batch);
  int64_t step() const;

  const Placement placement_;
  const int32_t stage_;
  const int32_t micro_batches_;
  const int64_t computes_;
  int64_t n_computed_ = 0;
  int32_t n_buffers_ = 0;
  std::vector<int32_t> free_;
  std::vector<Place> places_;
  std::vector<Instruction> list_;
};

}  // namespace dsc
