#include "pipeline/closed_form.hpp"

#include <algorithm>
#include <array>

namespace dsc {
namespace {

// Iterates over the steps and holds the instructions of the current one.
class ClosedForm : public Schedule {
 public:
  using Schedule::Schedule;

  bool next(Instruction& instruction) final {
    if (at_ == count_ && !refill()) return false;
    instruction = held_[at_++];
    return true;
  }

  void reset() final {
    next_step_ = 0;
    at_ = count_ = 0;
  }

 protected:
  // Returns the first step from `step` on that may have instructions; steps() if there is none.
  virtual int64_t skip_idle(int64_t step) const = 0;
  // Adds the instructions of a step.
  virtual void fill(int64_t step) = 0;

  void add(PipeOp op) { held_[count_++] = {.step = next_step_, .op = op}; }
  void add(PipeOp op, int64_t micro_batch, int64_t buffer, int32_t peer = -1) {
    held_[count_++] = {next_step_, op, static_cast<int32_t>(micro_batch), 0, static_cast<int32_t>(buffer),
                       peer};
  }

  bool is_valid(int64_t micro_batch) const { return micro_batch >= 0 && micro_batch < spec().micro_batches; }
  int32_t or_none(int64_t micro_batch) const {
    return is_valid(micro_batch) ? static_cast<int32_t>(micro_batch) : -1;
  }
  bool is_first() const { return spec().stage == 0; }
  bool is_last() const { return spec().stage == spec().stages - 1; }
  int32_t previous() const { return spec().stage - 1; }
  int32_t following() const { return spec().stage + 1; }

 private:
  static constexpr size_t kMostOfAStep = 7;

  bool refill() {
    at_ = count_ = 0;
    while (count_ == 0) {
      next_step_ = skip_idle(next_step_);
      if (next_step_ >= steps()) return false;
      fill(next_step_);
      ++next_step_;
    }
    return true;
  }

  int64_t next_step_ = 0;
  size_t at_ = 0;
  size_t count_ = 0;
  std::array<Instruction, kMostOfAStep> held_;
};

// In every other step, stage s runs a forward pass: in steps s, s + 2 and so on. In the remaining steps it
// runs backward passes, from step 2 * stages - 1 - s on. A result is sent in the step after it was computed.
// When a stage sends in a step, its neighbor receives in the same step, because s is even on one of them and
// odd on the other.
class DeepSpeedTrain final : public ClosedForm {
 public:
  using ClosedForm::ClosedForm;

  int64_t steps() const override { return 2 * (int64_t{spec().micro_batches} + spec().stages - 1); }
  StepView step(int64_t step) const override { return {or_none(micro_batch(step)), is_forward(step)}; }
  int32_t buffers() const override {
    return std::max(2, std::min(spec().stages - spec().stage, spec().micro_batches));
  }

 private:
  bool is_forward(int64_t step) const { return ((step ^ spec().stage) & 1) == 0; }
  int64_t first_backward() const { return 2 * int64_t{spec().stages} - 1 - spec().stage; }
  // The result may be below 0 or beyond the last micro-batch, if the step has no pass.
  int64_t micro_batch(int64_t step) const {
    return is_forward(step) ? (step - spec().stage) / 2 : (step - first_backward()) / 2;
  }
  int64_t buffer(int64_t micro_batch) const { return micro_batch % buffers(); }

  int64_t skip_idle(int64_t step) const override {
    // The stage runs a pass in every other step and sends the result in the step after that.
    const int64_t passes = 2 * int64_t{spec().micro_batches};
    step = std::max<int64_t>(step, spec().stage);
    if (step >= spec().stage + passes) step = std::max(step, first_backward());
    return step >= first_backward() + passes ? std::max(step, steps() - 1) : step;
  }

  void fill(int64_t step) override {
    const int64_t now = micro_batch(step);
    const int64_t before = micro_batch(step - 1);
    if (is_forward(step)) {
      if (is_valid(before) && !is_first()) add(PipeOp::kSendGrad, before, buffer(before), previous());
      if (is_valid(now) && !is_first()) add(PipeOp::kRecvActivation, now, buffer(now), previous());
      if (is_valid(now) && (is_first() || is_last())) add(PipeOp::kLoadMicroBatch, now, buffer(now));
      if (is_valid(now)) add(PipeOp::kForward, now, buffer(now));
    } else {
      if (is_valid(now) && !is_last()) add(PipeOp::kRecvGrad, now, buffer(now), following());
      if (is_valid(before) && !is_last()) add(PipeOp::kSendActivation, before, buffer(before), following());
      if (is_valid(now)) add(PipeOp::kBackward, now, buffer(now));
    }
    if (step < steps() - 1) return;
    add(PipeOp::kReduceTiedGrads);
    add(PipeOp::kReduceGrads);
    add(PipeOp::kOptimizerStep);
  }
};

// Stage s runs micro-batch m in step s + m and sends it in the next step.
class DeepSpeedInference final : public ClosedForm {
 public:
  using ClosedForm::ClosedForm;

  int64_t steps() const override { return int64_t{spec().micro_batches} + spec().stages - 1; }
  StepView step(int64_t step) const override { return {or_none(step - spec().stage), true}; }
  int32_t buffers() const override { return 2; }

 private:
  int64_t skip_idle(int64_t step) const override {
    if (step < spec().stage) return spec().stage;
    return step > int64_t{spec().stage} + spec().micro_batches ? steps() : step;
  }

  void fill(int64_t step) override {
    const int64_t now = step - spec().stage;
    const int64_t receives = (step + spec().stage) % 2;
    if (is_valid(now) && (is_first() || is_last())) add(PipeOp::kLoadMicroBatch, now, receives);
    // Even stages send first and odd stages receive first, so that every send meets a receive.
    const bool even = spec().stage % 2 == 0;
    if (even) send(now - 1, 1 - receives);
    if (is_valid(now) && !is_first()) add(PipeOp::kRecvActivation, now, receives, previous());
    if (!even) send(now - 1, 1 - receives);
    if (is_valid(now)) add(PipeOp::kForward, now, receives);
  }

  void send(int64_t micro_batch, int64_t buffer) {
    if (is_valid(micro_batch) && !is_last()) add(PipeOp::kSendActivation, micro_batch, buffer, following());
  }
};

// Every stage processes its own micro-batches, without messages.
class DataParallel final : public ClosedForm {
 public:
  using ClosedForm::ClosedForm;

  int64_t steps() const override { return spec().micro_batches; }
  StepView step(int64_t step) const override { return {static_cast<int32_t>(step), true}; }
  int32_t buffers() const override { return 1; }

 private:
  int64_t skip_idle(int64_t step) const override { return step; }

  void fill(int64_t step) override {
    add(PipeOp::kLoadMicroBatch, step, 0);
    add(PipeOp::kForward, step, 0);
    add(PipeOp::kBackward, step, 0);
    if (step < steps() - 1) return;
    add(PipeOp::kReduceGrads);
    add(PipeOp::kOptimizerStep);
  }
};

}  // namespace

std::unique_ptr<Schedule> deepspeed_train(ScheduleSpec spec) {
  return std::make_unique<DeepSpeedTrain>(std::move(spec));
}

std::unique_ptr<Schedule> deepspeed_inference(ScheduleSpec spec) {
  return std::make_unique<DeepSpeedInference>(std::move(spec));
}

std::unique_ptr<Schedule> data_parallel(ScheduleSpec spec) {
  return std::make_unique<DataParallel>(std::move(spec));
}

}  // namespace dsc
