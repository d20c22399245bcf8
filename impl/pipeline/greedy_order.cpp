#include "pipeline/greedy_order.hpp"

#include <algorithm>
#include <limits>

namespace dsc {
namespace {

// State of a stage during the search.
struct FreeStage {
  double free = 0;
  int64_t held = 0;
  double bytes = 0;
  // For each chunk, the next micro-batch of each kind of pass.
  std::vector<int32_t> forward, input, weight;
  StageOrder order;
};

// One simulation with given rules.
class Greedy {
 public:
  Greedy(const PipelinePlan& shape, const PipelineCosts& costs, const PipelineLimits& limits,
         const GreedyRules& rules)
      : costs_(costs),
        limits_(limits),
        rules_(rules),
        placement_(shape.placement),
        micro_batches_(shape.spec.micro_batches),
        forward_only_(shape.spec.forward_only),
        devices_(static_cast<size_t>(placement_.stages())),
        forward_at_(static_cast<size_t>(placement_.parts()) * static_cast<size_t>(micro_batches_), kNever),
        gradient_at_(forward_at_.size(), kNever) {
    const auto chunks = static_cast<size_t>(placement_.chunks());
    for (int32_t s = 0; s < placement_.stages(); ++s) {
      FreeStage& self = devices_[static_cast<size_t>(s)];
      self.forward.resize(chunks);
      self.input.resize(chunks);
      self.weight.resize(chunks);
      for (int32_t chunk = 0; chunk < placement_.chunks(); ++chunk)
        self.bytes += of_part(costs_.static_bytes, placement_.part(s, chunk));
    }
  }

  // Repeatedly advances the stage whose next operation can start first.
  std::shared_ptr<ComputeOrder> run() {
    const int64_t all = int64_t{placement_.parts()} * micro_batches_ * (forward_only_ ? 1 : 3);
    for (int64_t done = 0; done < all; ++done) {
      Choice best;
      for (int32_t s = 0; s < placement_.stages(); ++s)
        if (const Choice choice = choose(s); choice.start < best.start) best = choice;
      if (best.start == kNever) return nullptr;
      take(best);
    }
    std::vector<StageOrder> orders;
    for (FreeStage& device : devices_) orders.push_back(std::move(device.order));
    return std::make_shared<ListedOrder>(std::move(orders));
  }

 private:
  struct Choice {
    double start = kNever;
    int32_t stage = 0;
    Compute op;
  };

  FreeStage& at(int32_t stage) { return devices_[static_cast<size_t>(stage)]; }
  size_t index(int32_t part, int32_t m) const {
    return static_cast<size_t>(part) * static_cast<size_t>(micro_batches_) + static_cast<size_t>(m);
  }

  double forward_ready(int32_t stage, int32_t chunk, int32_t m) const {
    const int32_t part = placement_.part(stage, chunk);
    return placement_.has_input(part) ? forward_at_[index(part - 1, m)] : 0;
  }
  double input_ready(int32_t stage, int32_t chunk, int32_t m) {
    const int32_t part = placement_.part(stage, chunk);
    if (at(stage).forward[static_cast<size_t>(chunk)] <= m) return kNever;  // its forward pass has not run
    return placement_.has_output(part) ? gradient_at_[index(part + 1, m)] : 0;
  }

  // Returns whether the stage has room for another activation of this chunk. Room for one activation of each
  // later chunk is reserved: without it the pipeline could get stuck.
  bool has_room(int32_t stage, int32_t chunk) {
    const FreeStage& self = at(stage);
    const int64_t reserved = placement_.chunks() - 1 - chunk;
    if (limits_.activations > 0 && self.held + 1 + reserved > limits_.activations) return false;
    double bytes = self.bytes;
    for (int32_t c = chunk; c < placement_.chunks(); ++c)
      bytes += of_part(costs_.activation_bytes, placement_.part(stage, c));
    if (limits_.bytes > 0 && bytes > limits_.bytes) return false;
    const int64_t ahead = rules_.most_ahead - rules_.ahead_per_stage * stage;
    return rules_.most_ahead == 0 || self.held + reserved < std::max<int64_t>(ahead, placement_.chunks());
  }

  // best_forward() and best_input() return the operation of their kind that can start first.
  Choice best_forward(int32_t stage) {
    Choice best;
    for (int32_t i = 0; i < placement_.chunks(); ++i) {
      const int32_t chunk = rules_.deep_first ? placement_.chunks() - 1 - i : i;
      const int32_t m = at(stage).forward[static_cast<size_t>(chunk)];
      if (m == micro_batches_ || !has_room(stage, chunk)) continue;
      const double start = std::max(at(stage).free, forward_ready(stage, chunk, m));
      if (start < best.start) best = {start, stage, {PipeOp::kForward, chunk, m, false}};
    }
    return best;
  }
  Choice best_input(int32_t stage) {
    Choice best;
    for (int32_t i = 0; i < placement_.chunks() && !forward_only_; ++i) {
      const int32_t chunk = rules_.deep_first ? placement_.chunks() - 1 - i : i;
      const int32_t m = at(stage).input[static_cast<size_t>(chunk)];
      if (m == micro_batches_) continue;
      const double start = std::max(at(stage).free, input_ready(stage, chunk, m));
      if (start < best.start) best = {start, stage, {PipeOp::kBackwardInput, chunk, m, false}};
    }
    return best;
  }
  Choice best_weight(int32_t stage) {
    for (int32_t chunk = placement_.chunks() - 1; chunk >= 0 && !forward_only_; --chunk) {
      const int32_t m = at(stage).weight[static_cast<size_t>(chunk)];
      if (m < at(stage).input[static_cast<size_t>(chunk)])
        return {at(stage).free, stage, {PipeOp::kBackwardWeight, chunk, m, false}};
    }
    return {};
  }

  Choice choose(int32_t stage) {
    const Choice forward = best_forward(stage), input = best_input(stage), weight = best_weight(stage);
    Choice first = input;
    if (forward.start < input.start || (rules_.forward_first && forward.start == input.start))
      first = forward;
    if (weight.start == kNever) return first;
    const double time = of_part(costs_.backward_weight, placement_.part(stage, weight.op.chunk));
    return first.start <= weight.start + rules_.wait_fraction * time ? first : weight;
  }

  // Runs the chosen operation and records when its results arrive at other parts.
  void take(const Choice& choice) {
    FreeStage& self = at(choice.stage);
    const auto chunk = static_cast<size_t>(choice.op.chunk);
    const int32_t part = placement_.part(choice.stage, choice.op.chunk);
    self.order.push_back(choice.op);
    if (choice.op.op == PipeOp::kForward) {
      self.free = choice.start + of_part(costs_.forward, part);
      ++self.forward[chunk];
      if (placement_.has_output(part))
        forward_at_[index(part, choice.op.micro_batch)] = self.free + way(part, part + 1);
      if (!forward_only_) hold(self, part, 1);
    } else if (choice.op.op == PipeOp::kBackwardInput) {
      self.free = choice.start + of_part(costs_.backward_input, part);
      ++self.input[chunk];
      if (placement_.has_input(part))
        gradient_at_[index(part, choice.op.micro_batch)] = self.free + way(part, part - 1);
    } else {
      self.free = choice.start + of_part(costs_.backward_weight, part);
      ++self.weight[chunk];
      hold(self, part, -1);
    }
  }

  void hold(FreeStage& self, int32_t part, int64_t change) {
    self.held += change;
    self.bytes += static_cast<double>(change) * of_part(costs_.activation_bytes, part);
  }

  double way(int32_t from, int32_t to) const {
    if (placement_.stage(from) == placement_.stage(to)) return 0;
    const double bytes = of_part(costs_.message_bytes, std::min(from, to));
    return costs_.latency + (costs_.bytes_per_time > 0 ? bytes / costs_.bytes_per_time : 0);
  }

  const PipelineCosts& costs_;
  const PipelineLimits limits_;
  const GreedyRules rules_;
  const Placement placement_;
  const int32_t micro_batches_;
  const bool forward_only_;
  std::vector<FreeStage> devices_;
  // Arrival times of outputs and gradients at the part that needs them.
  std::vector<double> forward_at_, gradient_at_;
};

}  // namespace

std::shared_ptr<ComputeOrder> greedy_order(const PipelinePlan& shape, const PipelineCosts& costs,
                                           const PipelineLimits& limits, const GreedyRules& rules) {
  return Greedy(shape, costs, limits, rules).run();
}

}  // namespace dsc
