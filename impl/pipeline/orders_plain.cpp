// Schedules whose backward passes are not split into halves.
#include <algorithm>

#include "pipeline/orders.hpp"
#include "pipeline/pattern_order.hpp"

namespace dsc {
namespace {

constexpr PatternSlot kF{PipeOp::kForward, 0};
constexpr PatternSlot kB{PipeOp::kBackward, 1};

PatternOrder::Target one_chunk(int32_t, int32_t, int64_t ordinal) {
  return {0, static_cast<int32_t>(ordinal)};
}

// Adds the forward passes of the warm-up, then pairs of a forward and a backward pass, then the remaining
// backward passes.
void add_passes(PatternOrder& order, int32_t stage, int64_t total, int64_t warm_up) {
  order.add(stage, warm_up, {kF});
  order.add(stage, total - warm_up, {kF, kB});
  order.add(stage, warm_up, {kB});
}

}  // namespace

std::shared_ptr<PatternOrder> gpipe_order(int32_t stages, int32_t micro_batches) {
  auto order = std::make_shared<PatternOrder>(stages, one_chunk);
  for (int32_t stage = 0; stage < stages; ++stage) add_passes(*order, stage, micro_batches, micro_batches);
  return order;
}

std::shared_ptr<PatternOrder> one_f_one_b_order(int32_t stages, int32_t micro_batches) {
  auto order = std::make_shared<PatternOrder>(stages, one_chunk);
  for (int32_t stage = 0; stage < stages; ++stage)
    add_passes(*order, stage, micro_batches, std::min(stages - 1 - stage, micro_batches));
  return order;
}

std::shared_ptr<PatternOrder> in_turn_order(int32_t stages, int32_t micro_batches) {
  auto order = std::make_shared<PatternOrder>(stages, one_chunk);
  for (int32_t stage = 0; stage < stages; ++stage) add_passes(*order, stage, micro_batches, 0);
  return order;
}

std::shared_ptr<PatternOrder> interleaved_order(int32_t stages, int32_t micro_batches, int32_t chunks,
                                                int32_t group) {
  const auto map = [=](int32_t, int32_t stream, int64_t ordinal) -> PatternOrder::Target {
    const int64_t of_group = int64_t{group} * chunks;
    const int64_t first = ordinal / of_group * group;  // index of the group's first micro-batch
    const int64_t size = std::min<int64_t>(group, micro_batches - first);
    const int64_t within = ordinal % of_group;
    const auto chunk = static_cast<int32_t>(within / size);
    return {stream == kF.stream ? chunk : chunks - 1 - chunk, static_cast<int32_t>(first + within % size)};
  };
  auto order = std::make_shared<PatternOrder>(stages, map);
  const int64_t total = int64_t{micro_batches} * chunks;
  for (int32_t stage = 0; stage < stages; ++stage) {
    const int64_t ahead = int64_t{2} * (stages - 1 - stage) + int64_t{chunks - 1} * group;
    add_passes(*order, stage, total, std::min(ahead, total));
  }
  return order;
}

std::shared_ptr<PatternOrder> looped_bfs_order(int32_t stages, int32_t micro_batches, int32_t chunks) {
  const auto map = [=](int32_t, int32_t stream, int64_t ordinal) -> PatternOrder::Target {
    const auto chunk = static_cast<int32_t>(ordinal / micro_batches);
    const auto m = static_cast<int32_t>(ordinal % micro_batches);
    if (stream == kF.stream) return {chunk, m};
    return {chunks - 1 - chunk, micro_batches - 1 - m};
  };
  auto order = std::make_shared<PatternOrder>(stages, map);
  const int64_t total = int64_t{micro_batches} * chunks;
  for (int32_t stage = 0; stage < stages; ++stage) add_passes(*order, stage, total, total);
  return order;
}

}  // namespace dsc
