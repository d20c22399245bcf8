// DualPipeV: forward passes of one chunk overlap with backward passes of the other. The order consists of the
// eight steps of DeepSeek's DualPipe, with half of its stages; PyTorch calls it ScheduleDualPipeV.
#include "pipeline/orders.hpp"
#include "pipeline/pattern_order.hpp"

namespace dsc {
namespace {

enum Stream : int32_t {
  kForward0Stream,
  kForward1Stream,
  kBackward0Stream,
  kBackward1Stream,
  kWeightsStream
};

constexpr PatternSlot kDualF0{PipeOp::kForward, kForward0Stream}, kDualF1{PipeOp::kForward, kForward1Stream};
constexpr PatternSlot kDualB0{PipeOp::kBackward, kBackward0Stream},
    kDualB1{PipeOp::kBackward, kBackward1Stream};
constexpr PatternSlot kDualI0{PipeOp::kBackwardInput, kBackward0Stream},
    kDualI1{PipeOp::kBackwardInput, kBackward1Stream};
constexpr PatternSlot kDualW{PipeOp::kBackwardWeight, kWeightsStream};

constexpr PatternSlot at_once(PatternSlot slot) {
  slot.overlaps = true;
  return slot;
}

// Maps the weight halves of a stage to chunks and micro-batches. Weight halves run in the order of the input
// halves: first those of chunk 1 from the early steps, later those of both chunks. target() computes which
// one has the number `ordinal` on its stage.
struct WeightHalves {
  int32_t stages;
  int32_t micro_batches;

  int64_t early(int32_t stage) const { return stages - stage - 1; }

  // The number of whole backward passes of each chunk in step 6 of the schedule. The passes after them are
  // split into halves. Splitting may start one pass earlier for chunk 0 than for chunk 1.
  int64_t whole_of_chunk_1(int32_t stage) const { return (stage + 1) / 2 + (stage % 2 == 0 ? 1 : 0); }
  int64_t whole_of_chunk_0(int32_t stage) const { return (stage + 1) / 2; }

  PatternOrder::Target target(int32_t stage, int64_t ordinal) const {
    if (ordinal < early(stage)) return {1, static_cast<int32_t>(ordinal)};
    const int64_t of_chunk_1 = stage + 1 - whole_of_chunk_1(stage);
    const int64_t late = ordinal - early(stage);
    const int64_t first_1 = micro_batches - of_chunk_1;
    const int64_t first_0 = micro_batches - early(stage) - (stage + 1 - whole_of_chunk_0(stage));
    // The late weight halves alternate between the chunks until those of chunk 1 are used up. Even stages
    // begin with chunk 0, odd stages with chunk 1.
    const bool begins_with_0 = stage % 2 == 0;
    if (late < 2 * of_chunk_1) {
      const bool is_0 = (late % 2 == 0) == begins_with_0;
      return {is_0 ? 0 : 1, static_cast<int32_t>((is_0 ? first_0 : first_1) + late / 2)};
    }
    return {0, static_cast<int32_t>(first_0 + late - of_chunk_1)};
  }
};

void add_last_backwards(PatternOrder& order, int32_t stage, const WeightHalves& halves) {
  const int64_t whole_1 = halves.whole_of_chunk_1(stage);
  const int64_t whole_0 = halves.whole_of_chunk_0(stage);
  order.add(stage, whole_0, {kDualB1, kDualB0});
  if (whole_1 > whole_0) order.add(stage, 1, {kDualB1, kDualI0});
  order.add(stage, stage + 1 - whole_1, {kDualI1, kDualI0});
}

}  // namespace

std::shared_ptr<PatternOrder> dualpipe_v_order(int32_t stages, int32_t micro_batches) {
  const WeightHalves halves{stages, micro_batches};
  const auto map = [halves](int32_t stage, int32_t stream, int64_t ordinal) -> PatternOrder::Target {
    if (stream == kWeightsStream) return halves.target(stage, ordinal);
    return {stream % 2, static_cast<int32_t>(ordinal)};
  };
  auto order = std::make_shared<PatternOrder>(stages, map);
  const std::vector<PatternSlot> pairs{at_once(kDualF0), kDualB1, at_once(kDualF1), kDualB0};
  for (int32_t stage = 0; stage < stages; ++stage) {
    const int64_t early = halves.early(stage);
    int64_t rounds = micro_batches - int64_t{2} * stages + stage + 1;
    order->add(stage, 2 * early, {kDualF0});
    order->add(stage, stage + 1, {kDualF0, kDualF1});
    order->add(stage, early, {kDualI1, kDualW, kDualF1});
    // The last stage has to wait for the backward pass of the first pair, so this pair does not overlap.
    if (early == 0) {
      order->add(stage, 1, {kDualF0, kDualB1, at_once(kDualF1), kDualB0});
      --rounds;
    }
    order->add(stage, rounds, pairs);
    order->add(stage, early, {kDualB1, at_once(kDualF1), kDualB0});
    add_last_backwards(*order, stage, halves);
    order->add(stage, early, {kDualW, kDualI0});
    order->add(stage, stage + 1, {kDualW});
  }
  return order;
}

}  // namespace dsc
