// Orders that repeat themselves, which all schedules with a closed form do: a stage's order is a few
// stretches, and in each of them a short pattern repeats. Nothing is stored per micro-batch.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "pipeline/compute_order.hpp"

namespace dsc {

// Takes the next number of its stream, and streams count from 0. So {kForward, 0}, {kBackward, 1} repeated
// is one pass of each in turn.
struct PatternSlot {
  PipeOp op{};
  int32_t stream = 0;
  bool overlaps = false;
};

class PatternOrder final : public ComputeOrder {
 public:
  static constexpr size_t kStreams = 6;

  // What number `ordinal` of a stream is: chunk and micro-batch.
  struct Target {
    int32_t chunk;
    int32_t micro_batch;
  };
  using Map = std::function<Target(int32_t stage, int32_t stream, int64_t ordinal)>;

  explicit PatternOrder(int32_t stages, Map map)
      : map_(std::move(map)), programs_(static_cast<size_t>(stages)) {}

  // Appends a stretch to a stage's order; none if repeats is below 1 or the pattern is empty.
  void add(int32_t stage, int64_t repeats, const std::vector<PatternSlot>& pattern);

  int64_t size(int32_t stage) const override { return of(stage).size; }
  Compute at(int32_t stage, int64_t k) const override;

  // The same without its backward passes.
  std::shared_ptr<PatternOrder> only_forward() const;

 private:
  struct Slot {
    PatternSlot is;
    int64_t before = 0;      // of its stream, up to here when the stretch begins
    int64_t per_repeat = 0;  // of its stream
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
