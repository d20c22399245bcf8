// Schedules that split backward passes and compute gradients of weights in otherwise idle time: ZB-H1, ZB-H2
// and ZB-V.
#include <algorithm>

#include "pipeline/orders.hpp"
#include "pipeline/pattern_order.hpp"

namespace dsc {
namespace {

constexpr PatternSlot kHalfF{PipeOp::kForward, 0};
constexpr PatternSlot kHalfI{PipeOp::kBackwardInput, 1};
constexpr PatternSlot kHalfW{PipeOp::kBackwardWeight, 2};

constexpr PatternSlot kVF0{PipeOp::kForward, 0}, kVF1{PipeOp::kForward, 1};
constexpr PatternSlot kVI0{PipeOp::kBackwardInput, 2}, kVI1{PipeOp::kBackwardInput, 3};
constexpr PatternSlot kVW0{PipeOp::kBackwardWeight, 4}, kVW1{PipeOp::kBackwardWeight, 5};

// Adds `warm_up` forward passes and then rounds. A round is the input half of a micro-batch, the weight half
// of the micro-batch whose number is lower by `lag`, and a forward pass. Operations that do not exist at
// either end of the batch are left out.
void add_lagged(PatternOrder& order, int32_t stage, int64_t micro_batches, int64_t warm_up, int64_t lag) {
  const int64_t without_weights = std::min(lag, micro_batches);
  const int64_t with_forward = micro_batches - warm_up;
  order.add(stage, warm_up, {kHalfF});
  order.add(stage, std::min(without_weights, with_forward), {kHalfI, kHalfF});
  order.add(stage, with_forward - without_weights, {kHalfI, kHalfW, kHalfF});
  order.add(stage, without_weights - with_forward, {kHalfI});
  order.add(stage, micro_batches - std::max(without_weights, with_forward), {kHalfI, kHalfW});
  order.add(stage, without_weights, {kHalfW});
}

// Requires micro_batches >= 2 * stages - 1.
std::shared_ptr<PatternOrder> whole_zb_v(int32_t stages, int64_t micro_batches) {
  const auto map = [](int32_t, int32_t stream, int64_t ordinal) -> PatternOrder::Target {
    return {stream % 2, static_cast<int32_t>(ordinal)};
  };
  auto order = std::make_shared<PatternOrder>(stages, map);
  for (int32_t stage = 0; stage < stages; ++stage) {
    // The number of stages from this one to the last one, where the V turns back.
    const int64_t behind = stages - stage;
    order->add(stage, 2 * behind - 1, {kVF0});
    order->add(stage, stage, {kVF1, kVF0});
    order->add(stage, behind, {kVF1, kVI1, kVW1});
    order->add(stage, micro_batches - int64_t{2} * stages + stage + 1, {kVF0, kVI0, kVW0, kVF1, kVI1, kVW1});
    order->add(stage, behind - 1, {kVI0, kVW0, kVF1, kVI1, kVW1});
    order->add(stage, stage, {kVI0, kVI1});
    order->add(stage, behind, {kVI0, kVW0});
    order->add(stage, stage, {kVW1});
    order->add(stage, stage, {kVW0});
  }
  return order;
}

}  // namespace

std::shared_ptr<PatternOrder> zb_h1_order(int32_t stages, int32_t micro_batches) {
  auto order =
      std::make_shared<PatternOrder>(stages, [](int32_t, int32_t, int64_t ordinal) -> PatternOrder::Target {
        return {0, static_cast<int32_t>(ordinal)};
      });
  for (int32_t stage = 0; stage < stages; ++stage)
    add_lagged(*order, stage, micro_batches, std::min(stages - stage, micro_batches), stage);
  return order;
}

std::shared_ptr<PatternOrder> zb_h2_order(int32_t stages, int32_t micro_batches) {
  auto order =
      std::make_shared<PatternOrder>(stages, [](int32_t, int32_t, int64_t ordinal) -> PatternOrder::Target {
        return {0, static_cast<int32_t>(ordinal)};
      });
  for (int64_t stage = 0; stage < stages; ++stage)
    add_lagged(*order, static_cast<int32_t>(stage), micro_batches,
               std::min<int64_t>(2 * (stages - stage) - 1, micro_batches), 2 * stage);
  return order;
}

// With fewer micro-batches, takes the order for 2 * stages - 1 micro-batches and removes the micro-batches
// that do not exist.
std::shared_ptr<ComputeOrder> zb_v_order(int32_t stages, int32_t micro_batches) {
  const int64_t enough = std::max<int64_t>(2 * int64_t{stages} - 1, micro_batches);
  auto whole = whole_zb_v(stages, enough);
  if (enough == micro_batches) return whole;
  std::vector<StageOrder> left(static_cast<size_t>(stages));
  for (int32_t stage = 0; stage < stages; ++stage)
    for (int64_t k = 0; k < whole->size(stage); ++k)
      if (const Compute op = whole->at(stage, k); op.micro_batch < micro_batches)
        left[static_cast<size_t>(stage)].push_back(op);
  return std::make_shared<ListedOrder>(std::move(left));
}

}  // namespace dsc
