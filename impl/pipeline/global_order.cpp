#include "pipeline/global_order.hpp"

#include <array>
#include <vector>

#include "pipeline/progress.hpp"

namespace dsc {
namespace {

constexpr int32_t kNone = -1;
constexpr size_t kMostAtOnce = 2;  // operations of one stage that can overlap: a forward and a backward pass

// State of a stage during the simulation.
struct Stage {
  int64_t position = 0;  // index of ops[0] in the stage's order
  int64_t size = 0;
  std::array<Compute, kMostAtOnce> ops;  // operations that the stage runs now or will run next
  size_t n_ops = 0;
  size_t n_missing = 0;  // number of inputs of `ops` that are not available yet
  bool is_idle = true;
  // Head of the list of inputs that this stage has to send. They are not computed yet, or the stage is busy.
  int32_t first_waiter = kNone;
  // For each operation in `ops`: the next entry in the list of inputs that contains its input.
  std::array<int32_t, kMostAtOnce> next_waiter{kNone, kNone};
};

// Implements put_when_needed(). Time advances in units; each stage is idle, waiting or busy.
class Simulation {
 public:
  Simulation(const PipelinePlan& plan, OrderListener& listener)
      : order_(*plan.order),
        placement_(plan.placement),
        listener_(listener),
        progress_(plan),
        stages_(static_cast<size_t>(placement_.stages())) {}

  void run() {
    for (int32_t s = 0; s < placement_.stages(); ++s) at(s).size = order_.size(s);
    for (int32_t s = 0; s < placement_.stages(); ++s) look_at_next(s);
    for (start_ready(); n_busy_ > 0; start_ready()) {
      ++time_;
      finish_due();
    }
    expect_all_done();
    for (int32_t s = 0; s < placement_.stages(); ++s) progress_.expect_complete(s);
  }

 private:
  // An input of an operation that a stage runs next. It can be converted to a number, so that linked lists of
  // inputs need no memory of their own.
  struct Input {
    int32_t stage;
    size_t slot;
    int32_t id() const { return stage * static_cast<int32_t>(kMostAtOnce) + static_cast<int32_t>(slot); }
    static Input of(int32_t id) {
      return {id / static_cast<int32_t>(kMostAtOnce), static_cast<size_t>(id) % kMostAtOnce};
    }
  };

  Stage& at(int32_t stage) { return stages_[static_cast<size_t>(stage)]; }
  const Compute& op(const Input& input) { return at(input.stage).ops[input.slot]; }
  std::vector<int32_t>& due(int64_t time) { return due_[static_cast<size_t>(time) % due_.size()]; }

  Source source(const Input& input) {
    return source_of(placement_, placement_.part(input.stage, op(input).chunk), op(input).op);
  }

  // Takes the next operation of a stage, or the next two if they overlap.
  void look_at_next(int32_t stage) {
    Stage& self = at(stage);
    self.n_ops = 0;
    while (self.position < self.size && self.n_ops == 0) {
      Compute next = order_.at(stage, self.position);
      if (next.op == kIdle) {
        listener_.compute(stage, next);
        ++self.position;
        continue;
      }
      self.ops[self.n_ops++] = next;
      if (next.overlaps && self.position + 1 < self.size)
        self.ops[self.n_ops++] = order_.at(stage, self.position + 1);
    }
    if (self.n_ops > 0)
      progress_.check_pair(stage, self.position, self.ops[0], self.n_ops == 2 ? &self.ops[1] : nullptr);
    self.n_missing = 0;
    for (size_t slot = 0; slot < self.n_ops; ++slot) {
      progress_.check(stage, self.position + static_cast<int64_t>(slot), self.ops[slot]);
      const Source from = source({stage, slot});
      if (from.part != Source::kNone && placement_.stage(from.part) != stage) ++self.n_missing;
    }
    if (self.n_ops > 0 && self.n_missing == 0) ready_.push_back(stage);
    for (size_t slot = 0; slot < self.n_ops; ++slot) look_at_input({stage, slot});
  }

  // If the input can be received now, adds it to the arriving inputs. Otherwise adds it to the list of the
  // stage that sends it.
  void look_at_input(const Input& input) {
    const Source from = source(input);
    if (from.part == Source::kNone) return;
    const int32_t holder = placement_.stage(from.part);
    if (holder == input.stage) return;
    if (progress_.has(from, op(input).micro_batch) && at(holder).is_idle) {
      arriving_.push_back(input);
      if (--at(input.stage).n_missing == 0) ready_.push_back(input.stage);
      return;
    }
    at(input.stage).next_waiter[input.slot] = at(holder).first_waiter;
    at(holder).first_waiter = input.id();
  }

  // Marks all operations that end at this time as done before any stage continues, so that every stage sees
  // all results of this time.
  void finish_due() {
    auto& finished = due(time_);
    for (const int32_t stage : finished) finish(stage);
    for (const int32_t stage : finished) {
      look_at_next(stage);
      int32_t waiter = at(stage).first_waiter;
      at(stage).first_waiter = kNone;
      while (waiter != kNone) {
        const Input input = Input::of(waiter);
        waiter = at(input.stage).next_waiter[input.slot];
        look_at_input(input);
      }
    }
    finished.clear();
  }

  void finish(int32_t stage) {
    Stage& self = at(stage);
    for (size_t slot = 0; slot < self.n_ops; ++slot) progress_.note(stage, self.ops[slot]);
    self.position += static_cast<int64_t>(self.n_ops);
    self.is_idle = true;
    --n_busy_;
  }

  void start_ready() {
    for (const Input& input : arriving_)
      if (const Source from = source(input); from.is_gradient)
        listener_.gradient(from.part, op(input).micro_batch);
    for (const Input& input : arriving_)
      if (const Source from = source(input); !from.is_gradient)
        listener_.activation(from.part, op(input).micro_batch);
    arriving_.clear();
    for (const int32_t stage : ready_) start(stage);
    ready_.clear();
  }

  void start(int32_t stage) {
    Stage& self = at(stage);
    int64_t units = 0;
    for (size_t slot = 0; slot < self.n_ops; ++slot) {
      listener_.compute(stage, self.ops[slot]);
      units += self.ops[slot].op == PipeOp::kBackward ? 2 : 1;
    }
    self.is_idle = false;
    ++n_busy_;
    due(time_ + units).push_back(stage);
  }

  // Throws if a stage still waits for an input.
  void expect_all_done() {
    std::vector<Stuck> stuck;
    for (int32_t s = 0; s < placement_.stages(); ++s) {
      const Stage& self = at(s);
      for (size_t slot = 0; slot < self.n_ops && self.position < self.size; ++slot) {
        const Source from = source({s, slot});
        const bool comes_from_another = from.part != Source::kNone && placement_.stage(from.part) != s;
        if (!comes_from_another || progress_.has(from, self.ops[slot].micro_batch)) continue;
        stuck.push_back(
            {s, self.position + static_cast<int64_t>(slot), self.ops[slot], placement_.stage(from.part)});
        break;
      }
    }
    if (!stuck.empty()) refuse_stuck(stuck);
  }

  const ComputeOrder& order_;
  const Placement placement_;
  OrderListener& listener_;
  Progress progress_;
  std::vector<Stage> stages_;
  std::vector<Input> arriving_;  // inputs that can be received now
  // Stages that have all inputs of their next operations once the arriving inputs are received.
  std::vector<int32_t> ready_;
  // Stages by the time at which their operations end, which is 1 to 3 units after the current time.
  std::array<std::vector<int32_t>, 4> due_;
  int64_t time_ = 0;
  int64_t n_busy_ = 0;
};

}  // namespace

void put_when_needed(const PipelinePlan& plan, OrderListener& listener) { Simulation(plan, listener).run(); }

void put_in_order(const PipelinePlan& plan, OrderListener& listener) {
  if (plan.program) return put_as_given(plan, listener);
  if (plan.spec.messages == PipeMessages::kAtOnce) return put_at_once(plan, listener);
  put_when_needed(plan, listener);
}

}  // namespace dsc
