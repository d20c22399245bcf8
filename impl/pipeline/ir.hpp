// What a schedule is made of: instructions, and a way to walk through those of one stage.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace dsc {

// Numbers as in the public header.
enum class PipeOp : int32_t {
  kLoadMicroBatch = 1,
  kForward = 2,
  kBackward = 3,
  kBackwardInput = 4,
  kBackwardWeight = 5,
  kSendActivation = 6,
  kRecvActivation = 7,
  kSendGrad = 8,
  kRecvGrad = 9,
  kReduceTiedGrads = 10,
  kReduceGrads = 11,
  kOptimizerStep = 12,
  kOverlap = 13,
};

// "unknown" for a number that is no op.
const char* pipe_op_name(int32_t op) noexcept;
inline const char* pipe_op_name(PipeOp op) noexcept { return pipe_op_name(static_cast<int32_t>(op)); }

// Fields without meaning for the op are -1.
struct Instruction {
  int64_t step = 0;
  PipeOp op{};
  int32_t micro_batch = -1;
  int32_t chunk = -1;
  int32_t buffer = -1;
  int32_t peer = -1;

  bool operator==(const Instruction&) const = default;
};

// When the lowering puts sends and receives. Numbers as in the public header.
enum class PipeMessages : int32_t {
  kWhenNeeded = 0,  // when the receiver needs them: fewest buffers
  kAtOnce = 1,      // sent after what makes them, as PyTorch does
};

struct ScheduleSpec {
  std::string name;
  int32_t stages = 1;
  int32_t stage = 0;
  int32_t micro_batches = 1;
  int32_t chunks = 0;             // of the model, per stage; 0: what the schedule is made for
  int32_t micro_batch_group = 0;  // interleaved_1f1b; 0: a default
  bool forward_only = false;
  bool merge_backward = false;  // both halves of a backward pass in one where they are neighbours
  PipeMessages messages = PipeMessages::kWhenNeeded;
};

// What a step computes; micro_batch is -1 when it computes nothing.
struct StepView {
  int32_t micro_batch;
  bool is_forward;
};

// The instructions of one stage. Everything but next() and reset() may be called from any thread.
class Schedule {
 public:
  explicit Schedule(ScheduleSpec spec) : spec_(std::move(spec)) {}
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  const ScheduleSpec& spec() const noexcept { return spec_; }

  // False at the end; `instruction` is then left alone.
  virtual bool next(Instruction& instruction) = 0;
  virtual void reset() = 0;

  virtual int64_t steps() const = 0;
  virtual StepView step(int64_t step) const = 0;  // 0 to steps() - 1
  virtual int32_t buffers() const = 0;

 private:
  ScheduleSpec spec_;
};

}  // namespace dsc
