// Orders that consist of repeated patterns. The order of a stage is a list of a few stretches; in each
// stretch a short pattern is repeated. The memory does not depend on the number of micro-batches.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "pipeline/compute_order.hpp"

namespace dsc {

// One operation of a pattern. A stream is a group of operations that are counted together, such as the
// forward passes of chunk 0. The count starts from 0 and determines the micro-batch. For example, repeating
// {kForward, 0}, {kBackward, 1} alternates forward and backward passes.
struct PatternSlot {
  PipeOp op{};
  int32_t stream = 0;
  bool overlaps = false;
};

// An order of repeated patterns. It is immutable after the last add().
class PatternOrder final : public ComputeOrder {
 public:
  static constexpr size_t kStreams = 6;

  // The chunk and micro-batch of operation number `ordinal` of a stream.
  struct Target {
    int32_t chunk;
    int32_t micro_batch;
  };
  using Map = std::function<Target(int32_t stage, int32_t stream, int64_t ordinal)>;

  explicit PatternOrder(int32_t stages, Map map)
      : map_(std::move(map)), programs_(static_cast<size_t>(stages)) {}

  // Appends a stretch to a stage's order. Does nothing if `repeats` is below 1 or the pattern is empty.
  void add(int32_t stage, int64_t repeats, const std::vector<PatternSlot>& pattern);

  int64_t size(int32_t stage) const override { return of(stage).size; }
  Compute at(int32_t stage, int64_t k) const override;

  // Returns the same order without backward passes.
  std::shared_ptr<PatternOrder> only_forward() const;

 private:
  struct Slot {
    PatternSlot is;
    int64_t before = 0;      // number of the stream's operations before this slot's first one
    int64_t per_repeat = 0;  // number of the stream's operations in one repetition
  };
  struct Stretch {
    int64_t start;
    int64_t repeats;
    std::vector<Slot> pattern;
  };
  struct Program {
    int64_t size = 0;
    std::array<int64_t, kStreams> counts{};
    std::vector<Stretch> stretches;
  };

  const Program& of(int32_t stage) const { return programs_[static_cast<size_t>(stage)]; }

  Map map_;
  std::vector<Program> programs_;
};

}  // namespace dsc
