#include "pipeline/pattern_order.hpp"

#include <algorithm>

namespace dsc {

void PatternOrder::add(int32_t stage, int64_t repeats, const std::vector<PatternSlot>& pattern) {
  if (repeats < 1 || pattern.empty()) return;
  Program& program = programs_[static_cast<size_t>(stage)];
  Stretch stretch{program.size, repeats, {}};
  std::array<int64_t, kStreams> seen{};
  for (const PatternSlot& slot : pattern) {
    const auto stream = static_cast<size_t>(slot.stream);
    stretch.pattern.push_back({slot, program.counts[stream] + seen[stream]++, 0});
  }
  for (Slot& slot : stretch.pattern) slot.per_repeat = seen[static_cast<size_t>(slot.is.stream)];
  for (size_t stream = 0; stream < kStreams; ++stream) program.counts[stream] += repeats * seen[stream];
  program.size += repeats * static_cast<int64_t>(pattern.size());
  program.stretches.push_back(std::move(stretch));
}

Compute PatternOrder::at(int32_t stage, int64_t k) const {
  const auto& stretches = of(stage).stretches;
  const auto after = std::ranges::find_if(stretches, [&](const Stretch& it) { return it.start > k; });
  const Stretch& stretch = *std::prev(after);
  const auto length = static_cast<int64_t>(stretch.pattern.size());
  const int64_t repeat = (k - stretch.start) / length;
  const Slot& slot = stretch.pattern[static_cast<size_t>((k - stretch.start) % length)];
  const Target target = map_(stage, slot.is.stream, slot.before + repeat * slot.per_repeat);
  return {slot.is.op, target.chunk, target.micro_batch, slot.is.overlaps};
}

std::shared_ptr<PatternOrder> PatternOrder::only_forward() const {
  auto forward = std::make_shared<PatternOrder>(static_cast<int32_t>(programs_.size()), map_);
  for (size_t stage = 0; stage < programs_.size(); ++stage)
    for (const Stretch& stretch : programs_[stage].stretches) {
      std::vector<PatternSlot> pattern;
      for (const Slot& slot : stretch.pattern)
        if (slot.is.op == PipeOp::kForward) pattern.push_back({slot.is.op, slot.is.stream, false});
      forward->add(static_cast<int32_t>(stage), stretch.repeats, pattern);
    }
  return forward;
}

}  // namespace dsc
