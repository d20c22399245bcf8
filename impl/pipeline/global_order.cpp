#include "pipeline/global_order.hpp"

#include <array>
#include <cstdio>
#include <vector>

#include "base/error.hpp"

namespace dsc {
namespace {

constexpr int32_t kNone = -1;

// One bit for each part and micro-batch.
class Bits {
 public:
  Bits(int32_t parts, int32_t micro_batches)
      : micro_batches_(static_cast<size_t>(micro_batches)),
        bits_(static_cast<size_t>(parts) * micro_batches_) {}

  bool has(int32_t part, int32_t micro_batch) const { return bits_[index(part, micro_batch)]; }
  void set(int32_t part, int32_t micro_batch) { bits_[index(part, micro_batch)] = true; }

 private:
  size_t index(int32_t part, int32_t micro_batch) const {
    return static_cast<size_t>(part) * micro_batches_ + static_cast<size_t>(micro_batch);
  }

  size_t micro_batches_;
  std::vector<bool> bits_;
};

struct Stage {
  int64_t position = 0;  // in its order
  int64_t size = 0;
  int64_t work = 0;  // done, in units of time
  Compute current;   // what it runs, or what it waits to run
  bool is_idle = true;
  int32_t first_waiter = kNone;  // stages that wait for what this one computes
  int32_t next_waiter = kNone;   // in the list of the stage that this one waits for
};

bool runs_input_half(PipeOp op) { return op == PipeOp::kBackward || op == PipeOp::kBackwardInput; }
bool runs_weight_half(PipeOp op) { return op == PipeOp::kBackward || op == PipeOp::kBackwardWeight; }

class Simulation {
 public:
  Simulation(const ComputeOrder& order, const Placement& placement, int32_t micro_batches,
             OrderListener& listener)
      : order_(order),
        placement_(placement),
        micro_batches_(micro_batches),
        listener_(listener),
        stages_(static_cast<size_t>(placement.stages())),
        forward_(placement.parts(), micro_batches),
        input_half_(placement.parts(), micro_batches),
        weight_half_(placement.parts(), micro_batches) {}

  void run() {
    for (int32_t s = 0; s < placement_.stages(); ++s) at(s).size = order_.size(s);
    for (int32_t s = 0; s < placement_.stages(); ++s) look_at_next(s);
    for (start_ready(); n_busy_ > 0; start_ready()) {
      ++time_;
      finish_due();
    }
    for (int32_t s = 0; s < placement_.stages(); ++s) check_done(s);
  }

 private:
  // Where an operation's input comes from: a part whose forward pass or input half must be done; or nowhere.
  struct Source {
    int32_t part = kNone;
    bool is_gradient = false;
  };

  Stage& at(int32_t stage) { return stages_[static_cast<size_t>(stage)]; }
  int32_t part_of(int32_t stage) { return placement_.part(stage, at(stage).current.chunk); }
  std::vector<int32_t>& due(int64_t time) { return due_[static_cast<size_t>(time) % due_.size()]; }

  [[noreturn]] void refuse(int32_t stage, const char* reason) {
    const Compute& op = at(stage).current;
    fail(DSC_ERR_INVALID_ARG, "stage %d: operation %lld, %s of micro-batch %d in chunk %d, %s", stage,
         static_cast<long long>(at(stage).position), pipe_op_name(op.op), op.micro_batch, op.chunk, reason);
  }

  Source source(int32_t stage) {
    const PipeOp op = at(stage).current.op;
    const int32_t part = part_of(stage);
    if (op == PipeOp::kForward) return {part - 1, false};
    if (runs_input_half(op) && part + 1 < placement_.parts()) return {part + 1, true};
    return {};
  }

  // What an operation needs of its own stage's earlier ones.
  void check_next(int32_t stage) {
    const Compute& op = at(stage).current;
    const bool is_forward = op.op == PipeOp::kForward;
    if (!is_forward && !runs_input_half(op.op) && !runs_weight_half(op.op))
      refuse(stage, "is nothing that an order may hold: expected forward or a backward pass");
    if (op.chunk < 0 || op.chunk >= placement_.chunks()) refuse(stage, "is of a chunk that does not exist");
    if (op.micro_batch < 0 || op.micro_batch >= micro_batches_)
      refuse(stage, "is of a micro-batch that does not exist");
    const int32_t part = part_of(stage);
    if ((is_forward && forward_.has(part, op.micro_batch)) ||
        (runs_input_half(op.op) && input_half_.has(part, op.micro_batch)) ||
        (runs_weight_half(op.op) && weight_half_.has(part, op.micro_batch)))
      refuse(stage, "comes a second time");
    if (!is_forward && !forward_.has(part, op.micro_batch)) refuse(stage, "comes before its forward pass");
    if (op.op == PipeOp::kBackwardWeight && !input_half_.has(part, op.micro_batch))
      refuse(stage, "comes before its backward_input");
  }

  // Lists an idle stage as ready, or as waiting for the one that has its input.
  void look_at_next(int32_t stage) {
    Stage& self = at(stage);
    if (self.position == self.size) return;
    self.current = order_.at(stage, self.position);
    check_next(stage);
    const Source from = source(stage);
    if (from.part != kNone) {
      const int32_t holder = placement_.stage(from.part);
      const bool exists =
          (from.is_gradient ? input_half_ : forward_).has(from.part, self.current.micro_batch);
      if (!exists && holder == stage) refuse(stage, "comes before another chunk here has made its input");
      if (!exists || (holder != stage && !at(holder).is_idle)) {
        self.next_waiter = at(holder).first_waiter;
        at(holder).first_waiter = stage;
        return;
      }
    }
    ready_.push_back(stage);
  }

  void finish_due() {
    auto& finished = due(time_);
    for (const int32_t stage : finished) finish(stage);
    for (const int32_t stage : finished) {
      look_at_next(stage);
      int32_t waiter = at(stage).first_waiter;
      at(stage).first_waiter = kNone;
      while (waiter != kNone) {
        const int32_t next = at(waiter).next_waiter;
        look_at_next(waiter);
        waiter = next;
      }
    }
    finished.clear();
  }

  void finish(int32_t stage) {
    Stage& self = at(stage);
    const int32_t part = part_of(stage);
    if (self.current.op == PipeOp::kForward) forward_.set(part, self.current.micro_batch);
    if (runs_input_half(self.current.op)) input_half_.set(part, self.current.micro_batch);
    if (runs_weight_half(self.current.op)) weight_half_.set(part, self.current.micro_batch);
    ++self.position;
    self.is_idle = true;
    --n_busy_;
  }

  void start_ready() {
    for (const int32_t stage : ready_) receive(stage, true);
    for (const int32_t stage : ready_) receive(stage, false);
    for (const int32_t stage : ready_) start(stage);
    ready_.clear();
  }

  void receive(int32_t stage, bool is_gradient) {
    const Source from = source(stage);
    if (from.part == kNone || from.is_gradient != is_gradient || placement_.stage(from.part) == stage) return;
    if (is_gradient)
      listener_.gradient(from.part, at(stage).current.micro_batch);
    else
      listener_.activation(from.part, at(stage).current.micro_batch);
  }

  void start(int32_t stage) {
    Stage& self = at(stage);
    listener_.compute(stage, self.current);
    const int64_t units = self.current.op == PipeOp::kBackward ? 2 : 1;
    self.work += units;
    self.is_idle = false;
    ++n_busy_;
    due(time_ + units).push_back(stage);
  }

  // Nothing came twice, so the amount of work tells whether all of it was done.
  void check_done(int32_t stage) {
    const Stage& self = at(stage);
    if (self.position < self.size) {
      char reason[96];
      std::snprintf(reason, sizeof reason, "can never run: stage %d does not make its input before that",
                    placement_.stage(source(stage).part));
      refuse(stage, reason);
    }
    if (self.work != int64_t{3} * placement_.chunks() * micro_batches_) refuse_missing(stage);
  }

  [[noreturn]] void refuse_missing(int32_t stage) {
    int32_t chunk = 0;
    int32_t m = 0;
    while (weight_half_.has(placement_.part(stage, chunk), m))
      if (++m == micro_batches_) m = 0, ++chunk;
    const int32_t part = placement_.part(stage, chunk);
    const PipeOp op = !forward_.has(part, m)      ? PipeOp::kForward
                      : !input_half_.has(part, m) ? PipeOp::kBackward
                                                  : PipeOp::kBackwardWeight;
    fail(DSC_ERR_INVALID_ARG, "stage %d: the order has no %s of micro-batch %d in chunk %d", stage,
         pipe_op_name(op), m, chunk);
  }

  const ComputeOrder& order_;
  const Placement placement_;
  const int32_t micro_batches_;
  OrderListener& listener_;
  std::vector<Stage> stages_;
  Bits forward_;
  Bits input_half_;
  Bits weight_half_;
  std::vector<int32_t> ready_;               // their next operation can start now
  std::array<std::vector<int32_t>, 3> due_;  // stages by the time they finish, which is 1 or 2 units away
  int64_t time_ = 0;
  int64_t n_busy_ = 0;
};

}  // namespace

void put_in_order(const ComputeOrder& order, const Placement& placement, int32_t micro_batches,
                  OrderListener& listener) {
  Simulation(order, placement, micro_batches, listener).run();
}

}  // namespace dsc
