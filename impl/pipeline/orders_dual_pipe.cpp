// DualPipeV: forward and backward passes of the two chunks run at once. The eight steps are those of
// DeepSeek's DualPipe, cut in half; in PyTorch ScheduleDualPipeV.
#include "pipeline/orders.hpp"
#include "pipeline/pattern_order.hpp"

namespace dsc {
namespace {

enum Stream : int32_t { kForward0, kForward1, kBackward0, kBackward1, kWeights };

constexpr PatternSlot kF0{PipeOp::kForward, kForward0}, kF1{PipeOp::kForward, kForward1};
constexpr PatternSlot kB0{PipeOp::kBackward, kBackward0}, kB1{PipeOp::kBackward, kBackward1};
constexpr PatternSlot kI0{PipeOp::kBackwardInput, kBackward0}, kI1{PipeOp::kBackwardInput, kBackward1};
constexpr PatternSlot kW{PipeOp::kBackwardWeight, kWeights};

constexpr PatternSlot at_once(PatternSlot slot) {
  slot.overlaps = true;
  return slot;
}

// Weight halves come in the order of the input halves, of which a stage has some early ones in chunk 1, and
// at the end those of both chunks. They are found by counting: input half number `ordinal` of the stage.
struct WeightHalves {
  int32_t stages;
  int32_t micro_batches;

  int64_t early(int32_t stage) const { return stages - stage - 1; }

  // Of each chunk, the whole backward passes of step 6 before halves begin: chunk 0 may begin one earlier.
  int64_t whole_of_chunk_1(int32_t stage) const { return (stage + 1) / 2 + (stage % 2 == 0 ? 1 : 0); }
  int64_t whole_of_chunk_0(int32_t stage) const { return (stage + 1) / 2; }

  PatternOrder::Target target(int32_t stage, int64_t ordinal) const {
    if (ordinal < early(stage)) return {1, static_cast<int32_t>(ordinal)};
    const int64_t of_chunk_1 = stage + 1 - whole_of_chunk_1(stage);
    const int64_t late = ordinal - early(stage);
    const int64_t first_1 = micro_batches - of_chunk_1;
    const int64_t first_0 = micro_batches - early(stage) - (stage + 1 - whole_of_chunk_0(stage));
    // With an even stage number chunk 0 is first, else chunk 1; they alternate while chunk 1 lasts.
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
  order.add(stage, whole_0, {kB1, kB0});
  if (whole_1 > whole_0) order.add(stage, 1, {kB1, kI0});
  order.add(stage, stage + 1 - whole_1, {kI1, kI0});
}

}  // namespace

std::shared_ptr<PatternOrder> dualpipe_v_order(int32_t stages, int32_t micro_batches) {
  const WeightHalves halves{stages, micro_batches};
  const auto map = [halves](int32_t stage, int32_t stream, int64_t ordinal) -> PatternOrder::Target {
    if (stream == kWeights) return halves.target(stage, ordinal);
    return {stream % 2, static_cast<int32_t>(ordinal)};
  };
  auto order = std::make_shared<PatternOrder>(stages, map);
  const std::vector<PatternSlot> pairs{at_once(kF0), kB1, at_once(kF1), kB0};
  for (int32_t stage = 0; stage < stages; ++stage) {
    const int64_t early = halves.early(stage);
    int64_t rounds = micro_batches - int64_t{2} * stages + stage + 1;
    order->add(stage, 2 * early, {kF0});
    order->add(stage, stage + 1, {kF0, kF1});
    order->add(stage, early, {kI1, kW, kF1});
    if (early == 0) {  // the stage at the turn has the first pair's backward pass to wait for
      order->add(stage, 1, {kF0, kB1, at_once(kF1), kB0});
      --rounds;
    }
    order->add(stage, rounds, pairs);
    order->add(stage, early, {kB1, at_once(kF1), kB0});
    add_last_backwards(*order, stage, halves);
    order->add(stage, early, {kW, kI0});
    order->add(stage, stage + 1, {kW});
  }
  return order;
}

}  // namespace dsc
