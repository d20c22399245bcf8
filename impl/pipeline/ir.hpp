// The elements of a schedule: instructions, and an iterator over those of one stage.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace dsc {

// The values are those of the public header.
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

// Returns "unknown" for a number that is not an operation.
const char* pipe_op_name(int32_t op) noexcept;
inline const char* pipe_op_name(PipeOp op) noexcept { return pipe_op_name(static_cast<int32_t>(op)); }

// Fields that have no meaning for the operation are -1.
struct Instruction {
  int64_t step = 0;
  PipeOp op{};
  int32_t micro_batch = -1;
  int32_t chunk = -1;
  int32_t buffer = -1;
  int32_t peer = -1;

  bool operator==(const Instruction&) const = default;
};

// Selects where the lowering puts sends and receives. The values are those of the public header.
enum class PipeMessages : int32_t {
  kWhenNeeded = 0,  // when the receiver needs the message, which takes the fewest buffers
  kAtOnce = 1,      // right after the operation that produces the message, as in PyTorch
};

// The parameters of a schedule.
struct ScheduleSpec {
  std::string name;
  int32_t stages = 1;
  int32_t stage = 0;
  int32_t micro_batches = 1;
  int32_t chunks = 0;             // parts of the model per stage; 0 means the schedule's default
  int32_t micro_batch_group = 0;  // only for interleaved_1f1b; 0 means the schedule's default
  bool forward_only = false;
  bool merge_backward = false;  // merge the two halves of a backward pass if one directly follows the other
  PipeMessages messages = PipeMessages::kWhenNeeded;
};

// The computation in one step; micro_batch is -1 if the step computes nothing.
struct StepView {
  int32_t micro_batch;
  bool is_forward;
};

// Iterates over the instructions of one stage. All functions except next() and reset() may be called from any
// thread.
class Schedule {
 public:
  explicit Schedule(ScheduleSpec spec) : spec_(std::move(spec)) {}
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  const ScheduleSpec& spec() const noexcept { return spec_; }

  // Returns false, and does not change `instruction`, if there are no more instructions.
  virtual bool next(Instruction& instruction) = 0;
  virtual void reset() = 0;

  virtual int64_t steps() const = 0;
  virtual StepView step(int64_t step) const = 0;  // step is 0 to steps() - 1
  virtual int32_t buffers() const = 0;

 private:
  ScheduleSpec spec_;
};

}  // namespace dsc
