// V-Half and V-Min (Qi et al. 2024, arXiv:2405.15362; steps as in sail-sg/zero-bubble-pipeline-parallelism,
// commit 39f2c18). Every micro-batch runs the same block of operations, six units of time after the previous
// one. The length of the block therefore limits how many micro-batches are in progress. Then operations at
// both ends of the batch are moved earlier, if no stage needs more memory than before.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "pipeline/orders.hpp"

namespace dsc {
namespace {

// Operations in the order in which a micro-batch passes through a stage. The number in a name is the chunk.
// Weight halves of both chunks are kWeight at first; the last pass uses kWeight0 for those of chunk 0.
enum Kind : uint8_t { kForward0, kForward1, kInput1, kInput0, kWeight, kWeight0, kNothing = 255 };
constexpr size_t kKinds = 4;  // number of kinds before kWeight
constexpr int64_t kPeriod = 6;

using TimeRow = std::vector<uint8_t>;  // the operation that a stage runs in each unit of time

std::array<int64_t, kKinds> first_times(BuildingBlock block, int64_t stages, int64_t stage) {
  if (block == BuildingBlock::kHalf) {
    const int64_t gap = stages % 2 == 0 ? 3 : 0;
    return {2 * stage, 3 * stages - stage - 2, 3 * stages + gap + 2 * stage - 1,
            6 * stages + gap - stage - 2};
  }
  const int64_t gap = stages % 3 == 0 ? 2 : 0;
  return {stage, 2 * stages - stage - 1, 2 * stages + gap + stage, 4 * stages + gap - stage - 1};
}

bool is_input_half(uint8_t kind) { return kind == kInput0 || kind == kInput1; }
bool is_weight_half(uint8_t kind) { return kind == kWeight || kind == kWeight0; }
bool is_forward(uint8_t kind) { return kind == kForward0 || kind == kForward1; }

void put(TimeRow& row, int64_t time, uint8_t kind) {
  const auto at = static_cast<size_t>(time);
  if (row.size() <= at) row.resize(at + 1, kNothing);
  row[at] = kind;
}

// Puts each weight half into the first idle unit after its input half. If `apart` is set, chunk 0 gets its
// own kind kWeight0.
TimeRow with_weights(TimeRow row, bool apart) {
  // Number of weight halves of chunk 1 and of chunk 0 that have no unit yet.
  std::array<int64_t, 2> waiting{};
  const auto fill = [&] {
    const size_t which = waiting[0] > 0 ? 0 : 1;
    --waiting[which];
    return static_cast<uint8_t>(which == 0 ? kWeight : kWeight0);
  };
  for (uint8_t& kind : row) {
    if (is_input_half(kind)) ++waiting[apart && kind == kInput0 ? 1 : 0];
    if (kind == kNothing && waiting[0] + waiting[1] > 0) kind = fill();
  }
  while (waiting[0] + waiting[1] > 0) row.push_back(fill());
  return row;
}

TimeRow without_weights(TimeRow row) {
  std::ranges::replace_if(row, is_weight_half, uint8_t{kNothing});
  while (!row.empty() && row.back() == kNothing) row.pop_back();
  return row;
}

// Counts the activations that a stage holds. If the row has no weight halves, every idle unit is assumed to
// run a weight half if one is possible there.
struct Held {
  int64_t activations = 0;
  int64_t weights_waiting = 0;

  void pass(uint8_t kind, bool row_has_weights) {
    if (is_forward(kind)) ++activations;
    if (is_input_half(kind)) ++weights_waiting;
    const bool fills = kind == kNothing && !row_has_weights && weights_waiting > 0;
    if (is_weight_half(kind) || fills) --activations, --weights_waiting;
  }
  bool operator==(const Held&) const = default;
};

// Visits all operations in order of time. Each is moved to the earliest idle unit after its inputs if the
// stage then never holds more activations than the maximum of all stages before the reordering.
class Reordering {
 public:
  Reordering(std::vector<TimeRow> rows, int32_t micro_batches, bool has_weights)
      : rows_(std::move(rows)),
        micro_batches_(static_cast<size_t>(micro_batches)),
        has_weights_(has_weights),
        held_(rows_.size()),
        times_(rows_.size()),
        input_halves_(rows_.size()) {
    for (size_t s = 0; s < rows_.size(); ++s) {
      held_[s].resize(rows_[s].size());
      note_held(s, 0, rows_[s].size());
      for (const Held& held : held_[s]) most_ = std::max(most_, held.activations);
    }
  }

  std::vector<TimeRow> run() {
    size_t end = 0;
    for (const TimeRow& row : rows_) end = std::max(end, row.size());
    for (size_t time = 0; time < end; ++time)
      for (size_t s = 0; s < rows_.size(); ++s)
        if (time < rows_[s].size() && rows_[s][time] != kNothing) visit(s, time);
    return std::move(rows_);
  }

 private:
  // The phase decides whether operations are moved. The middle lasts from the first backward pass that
  // completes a micro-batch to the last forward pass that begins one, and is left unchanged. Operations at
  // the end are always moved; those at the start are moved only if the rows contain weight halves.
  enum class Phase { kStart, kMiddle, kEnd };

  // Moves one operation if the current phase allows it, and updates the phase.
  void visit(size_t s, size_t time) {
    const uint8_t kind = rows_[s][time];
    auto& times = times_[s][static_cast<size_t>(kind)];
    if (phase_ == Phase::kStart && kind == kInput0 && s == 0) phase_ = Phase::kMiddle;
    size_t slot = time;
    if (phase_ == Phase::kEnd || (phase_ == Phase::kStart && has_weights_)) slot = earliest(s, kind, time);
    if (phase_ == Phase::kMiddle && kind == kForward0 && times.size() + 1 == micro_batches_)
      phase_ = Phase::kEnd;
    times.push_back(slot);
    if (is_input_half(kind)) input_halves_[s].insert(std::ranges::upper_bound(input_halves_[s], slot), slot);
    if (slot == time) return;
    std::swap(rows_[s][slot], rows_[s][time]);
    note_held(s, slot, time);
  }

  size_t earliest(size_t s, uint8_t kind, size_t time) const {
    for (size_t slot = first_possible(s, kind); slot < time; ++slot)
      if (rows_[s][slot] == kNothing && fits(s, slot, time)) return slot;
    return time;
  }

  // Returns the first unit after all inputs of the next operation of this kind.
  size_t first_possible(size_t s, uint8_t kind) const {
    const auto k = static_cast<size_t>(kind);
    const size_t m = times_[s][k].size();
    size_t first = m > 0 ? times_[s][k][m - 1] + 1 : 0;
    const auto after = [&](size_t time) { first = std::max(first, time + 1); };
    if (kind == kWeight) {
      after(input_halves_[s][m]);
      return first;
    }
    if (k % 2 == 0 && s > 0) after(times_[s - 1][k][m]);
    if (k % 2 == 1 && s + 1 < rows_.size()) after(times_[s + 1][k][m]);
    if (k > 0) after(times_[s][k - 1][m]);
    return first;
  }

  // Returns whether the stage stays within its memory limit if the operation of unit `from` runs in unit `to`
  // instead.
  bool fits(size_t s, size_t to, size_t from) const {
    const TimeRow& row = rows_[s];
    Held held = to > 0 ? held_[s][to - 1] : Held{};
    for (size_t time = to; time < row.size(); ++time) {
      held.pass(time == to ? row[from] : time == from ? uint8_t{kNothing} : row[time], has_weights_);
      if (held.activations > most_) return false;
      if (time >= from && held == held_[s][time]) return true;
    }
    return true;
  }

  // Updates the counts of unit `from` and later. Operations after unit `to` have not changed.
  void note_held(size_t s, size_t from, size_t to) {
    Held held = from > 0 ? held_[s][from - 1] : Held{};
    for (size_t time = from; time < rows_[s].size(); ++time) {
      held.pass(rows_[s][time], has_weights_);
      if (time > to && held == held_[s][time]) return;
      held_[s][time] = held;
    }
  }

  std::vector<TimeRow> rows_;
  const size_t micro_batches_;
  const bool has_weights_;
  std::vector<std::vector<Held>> held_;  // the activations held after each unit of time
  int64_t most_ = 0;
  std::vector<std::array<std::vector<size_t>, kKinds + 1>> times_;  // times of visited operations, by kind
  std::vector<std::vector<size_t>> input_halves_;  // times of visited input halves of both kinds, sorted
  Phase phase_ = Phase::kStart;
};

// Removes idle time: starts every operation as early as possible without changing the order. Each operation
// takes one unit of time.
std::vector<TimeRow> squeezed(const std::vector<TimeRow>& rows) {
  size_t end = 0;
  for (const TimeRow& row : rows) end = std::max(end, row.size());
  std::vector<TimeRow> early(rows.size());
  std::vector<std::array<std::vector<int64_t>, kKinds>> times(rows.size());
  for (size_t time = 0; time < end; ++time)
    for (size_t s = 0; s < rows.size(); ++s) {
      const uint8_t kind = time < rows[s].size() ? rows[s][time] : uint8_t{kNothing};
      if (kind == kNothing) continue;
      auto start = static_cast<int64_t>(early[s].size());
      if (kind < kWeight) {
        const auto k = static_cast<size_t>(kind);
        const size_t m = times[s][k].size();
        if (k % 2 == 0 && s > 0) start = std::max(start, times[s - 1][k][m] + 1);
        if (k % 2 == 1 && s + 1 < rows.size()) start = std::max(start, times[s + 1][k][m] + 1);
        if (k > 0) start = std::max(start, times[s][k - 1][m] + 1);
        times[s][k].push_back(start);
      }
      put(early[s], start, kind);
    }
  return early;
}

StageOrder listed(const TimeRow& row) {
  std::array<int32_t, 6> next{};
  StageOrder order;
  for (const uint8_t kind : row) {
    if (kind == kNothing) continue;
    const PipeOp op = is_forward(kind)      ? PipeOp::kForward
                      : is_input_half(kind) ? PipeOp::kBackwardInput
                                            : PipeOp::kBackwardWeight;
    const bool is_chunk_1 = kind == kForward1 || kind == kInput1 || kind == kWeight;
    order.push_back({op, is_chunk_1 ? 1 : 0, next[static_cast<size_t>(kind)]++});
  }
  return order;
}

}  // namespace

// Reorders the operations twice: first with weight halves in the rows, and then without them, so that the
// weight halves can be put into the remaining idle time again.
std::shared_ptr<ComputeOrder> building_block_order(BuildingBlock block, int32_t stages,
                                                   int32_t micro_batches) {
  std::vector<TimeRow> rows(static_cast<size_t>(stages));
  for (size_t s = 0; s < rows.size(); ++s) {
    const auto first = first_times(block, stages, static_cast<int64_t>(s));
    for (size_t kind = 0; kind < kKinds; ++kind)
      for (int64_t m = 0; m < micro_batches; ++m)
        put(rows[s], first[kind] + kPeriod * m, static_cast<uint8_t>(kind));
  }
  const auto each = [&](auto change) {
    for (TimeRow& row : rows) row = change(std::move(row));
  };
  each([](TimeRow row) { return with_weights(std::move(row), false); });
  rows = squeezed(Reordering(std::move(rows), micro_batches, true).run());
  each(without_weights);
  rows = Reordering(std::move(rows), micro_batches, false).run();
  each([](TimeRow row) { return with_weights(std::move(row), false); });
  rows = squeezed(rows);
  each(without_weights);
  std::vector<StageOrder> orders;
  orders.reserve(rows.size());
  for (TimeRow& row : rows) orders.push_back(listed(with_weights(std::move(row), true)));
  return std::make_shared<ListedOrder>(std::move(orders));
}

}  // namespace dsc
