#include "pipeline/compute_order.hpp"

#include <algorithm>

namespace dsc {
namespace {

Compute forward(int64_t micro_batch) { return {PipeOp::kForward, 0, static_cast<int32_t>(micro_batch)}; }
Compute backward(int64_t micro_batch) { return {PipeOp::kBackward, 0, static_cast<int32_t>(micro_batch)}; }

class GPipeOrder final : public ComputeOrder {
 public:
  explicit GPipeOrder(int32_t micro_batches) : micro_batches_(micro_batches) {}

  int64_t size(int32_t) const override { return 2 * micro_batches_; }
  Compute at(int32_t, int64_t k) const override {
    return k < micro_batches_ ? forward(k) : backward(k - micro_batches_);
  }

 private:
  int64_t micro_batches_;
};

class OneFOneBOrder final : public ComputeOrder {
 public:
  OneFOneBOrder(int32_t stages, int32_t micro_batches) : stages_(stages), micro_batches_(micro_batches) {}

  int64_t size(int32_t) const override { return 2 * micro_batches_; }
  Compute at(int32_t stage, int64_t k) const override {
    const int64_t warm_up = std::min(stages_ - 1 - stage, micro_batches_);
    if (k < warm_up) return forward(k);
    if (k >= 2 * micro_batches_ - warm_up) return backward(k - micro_batches_);
    const int64_t pair = (k - warm_up) / 2;
    return (k - warm_up) % 2 == 0 ? forward(warm_up + pair) : backward(pair);
  }

 private:
  int64_t stages_;
  int64_t micro_batches_;
};

}  // namespace

std::shared_ptr<const ComputeOrder> gpipe_order(int32_t micro_batches) {
  return std::make_shared<GPipeOrder>(micro_batches);
}

std::shared_ptr<const ComputeOrder> one_f_one_b_order(int32_t stages, int32_t micro_batches) {
  return std::make_shared<OneFOneBOrder>(stages, micro_batches);
}

}  // namespace dsc
