// A pipeline with known numbers through dsc_pipe_run: stage s gives x * (s + 2) + s. Every callback checks
// what it was handed, also that its buffers have stayed as they were since the forward pass.
#include <pthread.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
#include "cmocka_c.h"
#include "ranks.h"
}

namespace {

constexpr int kWidth = 5;       // of the f64 tensor that flows through the stages
constexpr int kLabelWidth = 3;  // of the i32 tensor beside it, which has no gradient

struct Layout {
  const char* name;
  int32_t micro_batches;
};

// What goes wrong, on which stage.
enum class Trouble {
  kNone,
  kReturns,
  kThrows,
  kReenters,
  kSleeps,
  kCancels,
  kDestroysSchedule,
  kDestroysComm
};

class Stage {
 public:
  Stage(rank_t* self, dsc_comm_t* comm, const Layout& layout) : self_(self), comm_(comm), layout_(layout) {}
  ~Stage() { dsc_pipe_schedule_destroy(schedule); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  int prepare();
  dsc_result_t run(double* mean = nullptr);

  bool trains() const { return std::strcmp(layout_.name, "deepspeed_inference") != 0; }
  bool alone() const { return std::strcmp(layout_.name, "data_parallel") == 0; }
  bool first() const { return alone() || self_->rank == 0; }
  bool last() const { return alone() || self_->rank == self_->size - 1; }
  double expected_mean() const;
  int check_counts(int runs) const;

  dsc_pipe_schedule_t* schedule = nullptr;
  dsc_pipe_schedule_options_t schedule_options{};
  dsc_pipe_callbacks_t callbacks{};
  dsc_pipe_run_options_t options{};
  dsc_tensor_t tensors[2]{};
  int64_t shape[2] = {1, kWidth};
  int64_t label_shape[1] = {kLabelWidth};
  Trouble trouble = Trouble::kNone;
  int trouble_rank = -1;
  int troubles = 0;  // that were made
  std::string problem;

 private:
  template <int (Stage::*method)(const dsc_pipe_call_t&)>
  static int32_t enter(void* context, const dsc_pipe_call_t* call) {
    return (static_cast<Stage*>(context)->*method)(*call);
  }
  int load(const dsc_pipe_call_t& call);
  int forward(const dsc_pipe_call_t& call);
  int backward(const dsc_pipe_call_t& call);
  int close_step(const dsc_pipe_call_t& call);
  int reduce(const dsc_pipe_call_t& call);
  int wrong(const char* what, double came, double expected);
  int make_trouble();

  double scale(int stage) const { return stage + 2; }
  double input(int stage, int micro_batch, int i) const;
  double output(int stage, int micro_batch, int i) const {
    return input(stage, micro_batch, i) * scale(stage) + stage;
  }
  double gradient(int stage, int i) const;  // of the output

  rank_t* self_;
  dsc_comm_t* comm_;
  Layout layout_;
  std::map<int, int> calls_;   // by op
  std::map<int, bool> alive_;  // micro-batches between forward and backward
};

double Stage::input(int stage, int micro_batch, int i) const {
  return stage == 0 || alone() ? micro_batch + 0.25 * i : output(stage - 1, micro_batch, i);
}

// The last stage's loss is the sum over i of (i + 1) times its output.
double Stage::gradient(int stage, int i) const {
  return stage == self_->size - 1 ? i + 1 : gradient(stage + 1, i) * scale(stage + 1);
}

double Stage::expected_mean() const {
  double sum = 0;
  for (int m = 0; m < layout_.micro_batches; ++m)
    for (int i = 0; i < kWidth; ++i) sum += (i + 1) * output(self_->size - 1, m, i);
  return sum / layout_.micro_batches;
}

int Stage::wrong(const char* what, double came, double expected) {
  char text[200];
  std::snprintf(text, sizeof text, "%s of %s is %g, expected %g", what, layout_.name, came, expected);
  problem = text;
  return 99;
}

int Stage::prepare() {
  dsc_pipe_schedule_options_init(&schedule_options, sizeof schedule_options);
  schedule_options.name = layout_.name;
  schedule_options.stages = self_->size;
  schedule_options.stage = self_->rank;
  schedule_options.micro_batches = layout_.micro_batches;
  CHECK_OK(self_, dsc_pipe_schedule_create(&schedule_options, &schedule));
  callbacks.struct_size = sizeof callbacks;
  callbacks.context = this;
  callbacks.load_micro_batch = enter<&Stage::load>;
  callbacks.forward = enter<&Stage::forward>;
  callbacks.backward = enter<&Stage::backward>;
  callbacks.reduce_tied_grads = enter<&Stage::close_step>;
  callbacks.reduce_grads = enter<&Stage::reduce>;
  callbacks.optimizer_step = enter<&Stage::close_step>;
  tensors[0] = {sizeof(dsc_tensor_t), nullptr, kWidth, shape, "x", DSC_DTYPE_F64, 2, -1, 0};
  tensors[1] = {sizeof(dsc_tensor_t), nullptr, kLabelWidth, label_shape, nullptr, DSC_DTYPE_I32, 1, -1, 0};
  dsc_pipe_run_options_init(&options, sizeof options);
  options.inputs = first() ? nullptr : tensors;
  options.n_inputs = first() ? 0 : 2;
  options.outputs = last() ? nullptr : tensors;
  options.n_outputs = last() ? 0 : 2;
  return 0;
}

dsc_result_t Stage::run(double* mean) { return dsc_pipe_run(schedule, comm_, &callbacks, &options, mean); }

int Stage::load(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  return first() || last() ? 0 : wrong("load_micro_batch on a stage in the middle: stage", self_->rank, -1);
}

int Stage::make_trouble() {
  if (self_->rank != trouble_rank) return 0;
  ++troubles;
  switch (trouble) {
    case Trouble::kReturns:
      return 7;
    case Trouble::kThrows:
      throw std::runtime_error("out of paint");
    case Trouble::kReenters: {
      dsc_pipe_instruction_t next{};
      next.struct_size = sizeof next;
      if (dsc_barrier(comm_, nullptr, nullptr) != DSC_ERR_BUSY)
        return wrong("a barrier inside", 0, DSC_ERR_BUSY);
      if (dsc_pipe_schedule_next(schedule, &next) != DSC_ERR_BUSY)
        return wrong("next inside", 0, DSC_ERR_BUSY);
      return 0;
    }
    case Trouble::kSleeps:
      for (int64_t end = now_ms() + 5000; now_ms() < end;) {
        dsc_error_info_t info{};
        info.struct_size = sizeof info;
        dsc_comm_error(comm_, &info);
        if (info.revoked) return 0;  // the others have given up on this rank
      }
      return wrong("seconds of sleep", 5, 0);
    case Trouble::kCancels:
      pthread_cancel(pthread_self());
      pthread_testcancel();
      return wrong("a cancelled thread", 1, 0);
    case Trouble::kDestroysSchedule:
      return dsc_pipe_schedule_destroy(schedule);
    case Trouble::kDestroysComm:
      return dsc_comm_destroy(comm_);
    default:
      return 0;
  }
}

int Stage::forward(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  const int m = call.instruction->micro_batch;
  const int stage = alone() ? self_->size - 1 : self_->rank;
  if ((call.inputs == nullptr) != first()) return wrong("inputs are NULL", call.inputs == nullptr, first());
  if ((call.outputs == nullptr) != last()) return wrong("outputs are NULL", call.outputs == nullptr, last());
  if ((call.loss != nullptr) != last()) return wrong("loss is there", call.loss != nullptr, last());
  if (m == 1)
    if (const int answer = make_trouble(); answer != 0) return answer;
  for (int i = 0; i < kWidth && !first(); ++i)
    if (const double x = static_cast<double*>(call.inputs[0])[i]; x != input(stage, m, i))
      return wrong("an input", x, input(stage, m, i));
  if (!first() && static_cast<int32_t*>(call.inputs[1])[kLabelWidth - 1] != 1000 * self_->rank + m)
    return wrong("a label", static_cast<int32_t*>(call.inputs[1])[kLabelWidth - 1], 1000 * self_->rank + m);
  for (int i = 0; i < kWidth && !last(); ++i) static_cast<double*>(call.outputs[0])[i] = output(stage, m, i);
  for (int i = 0; i < kLabelWidth && !last(); ++i)
    static_cast<int32_t*>(call.outputs[1])[i] = 1000 * (self_->rank + 1) + m;
  for (int i = 0; i < kWidth && last(); ++i) *call.loss += (i + 1) * output(stage, m, i);
  if (alive_[m]) return wrong("forward passes without a backward pass", 2, 1);
  alive_[m] = trains();
  return 0;
}

int Stage::backward(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  const int m = call.instruction->micro_batch;
  const int stage = self_->rank;
  if (!alive_[m]) return wrong("a backward pass before its forward pass, micro-batch", m, -1);
  alive_[m] = false;
  if ((call.output_grads == nullptr) != last()) return wrong("output_grads are there", 0, 1);
  if ((call.input_grads == nullptr) != first()) return wrong("input_grads are there", 0, 1);
  if (call.output_grads && call.output_grads[1]) return wrong("integers have a gradient", 1, 0);
  for (int i = 0; i < kWidth; ++i) {
    if (!first() && static_cast<double*>(call.inputs[0])[i] != input(stage, m, i))
      return wrong("an input at backward", static_cast<double*>(call.inputs[0])[i], input(stage, m, i));
    if (!last() && static_cast<double*>(call.outputs[0])[i] != output(stage, m, i))
      return wrong("an output at backward", static_cast<double*>(call.outputs[0])[i], output(stage, m, i));
    const double grad = last() ? i + 1 : static_cast<double*>(call.output_grads[0])[i];
    if (!alone() && grad != gradient(stage, i)) return wrong("a gradient", grad, gradient(stage, i));
    if (!first()) static_cast<double*>(call.input_grads[0])[i] = grad * scale(stage);
  }
  return 0;
}

int Stage::close_step(const dsc_pipe_call_t& call) {
  ++calls_[call.instruction->op];
  if (call.inputs || call.outputs || call.instruction->micro_batch != -1)
    return wrong("a micro-batch at the end", 1, 0);
  return 0;
}

// A callback may use other communicators.
int Stage::reduce(const dsc_pipe_call_t& call) {
  int32_t one = 1, sum = 0;
  if (dsc_all_reduce(self_->world, &one, &sum, 1, DSC_DTYPE_I32, DSC_OP_SUM, nullptr, nullptr) != DSC_OK ||
      sum != self_->size)
    return wrong("a sum inside", sum, self_->size);
  return close_step(call);
}

int Stage::check_counts(int runs) const {
  const auto count = [&](int op) {
    const auto found = calls_.find(op);
    return found == calls_.end() ? 0 : found->second;
  };
  const int each = runs * layout_.micro_batches;
  const int closing = trains() ? runs : 0;
  CHECK(self_, count(DSC_PIPE_FORWARD) == each);
  CHECK(self_, count(DSC_PIPE_BACKWARD) == (trains() ? each : 0));
  CHECK(self_, count(DSC_PIPE_LOAD_MICRO_BATCH) == (first() || last() ? each : 0));
  CHECK(self_, count(DSC_PIPE_REDUCE_GRADS) == closing);
  CHECK(self_, count(DSC_PIPE_OPTIMIZER_STEP) == closing);
  CHECK(self_, count(DSC_PIPE_REDUCE_TIED_GRADS) == (alone() ? 0 : closing));
  return 0;
}

// A pipeline of its own beside the world, which callbacks use.
int split_off(rank_t* self, dsc_comm_t** comm) {
  CHECK_OK(self, dsc_comm_split(self->world, 0, self->rank, nullptr, comm));
  return 0;
}

int run_twice(rank_t* self, dsc_comm_t* comm, const Layout& layout) {
  Stage stage(self, comm, layout);
  PASS_ON(stage.prepare());
  for (int run = 1; run <= 2; ++run) {  // the second uses channels and memory of the first
    double mean = -1;
    const dsc_result_t result = stage.run(&mean);
    if (!stage.problem.empty()) FAIL(self, "%s", stage.problem.c_str());
    if (result != DSC_OK)
      FAIL(self, "%s, %d micro-batches: %s", layout.name, layout.micro_batches, dsc_last_error_message());
    if (std::abs(mean - stage.expected_mean()) > 1e-12 * std::abs(mean))
      FAIL(self, "the mean loss of %s is %.17g, expected %.17g", layout.name, mean, stage.expected_mean());
    PASS_ON(stage.check_counts(run));
  }
  return 0;
}

int run_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  const int32_t more = test_scale() == 1 ? 1 : 3;
  for (const char* name : {"deepspeed_train", "deepspeed_inference", "data_parallel", "gpipe", "1f1b"})
    for (int32_t micro_batches = 1; micro_batches <= 16; micro_batches += more)
      PASS_ON(run_twice(self, comm, {name, micro_batches}));
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void every_schedule_runs(void**) {
  const int32_t most = test_scale() == 1 ? 8 : 4;
  for (int32_t stages = 1; stages <= most; ++stages)
    assert_int_equal(run_ranks(stages, run_body, nullptr), 0);
}

// ---- what goes wrong on one rank is told to all
// ---------------------------------------------------------------

struct Case {
  const char* what;
  void (*spoil)(Stage& stage, int rank);
  dsc_result_t expected;
  const char* text;  // in the message of every rank
};

const Case kRefused[] = {
    {"a missing callback",
     [](Stage& stage, int rank) {
       if (rank == 2) stage.callbacks.backward = nullptr;
     },
     DSC_ERR_INVALID_ARG,
     "rank 2: there is no callback for backward, which the schedule has as backward of micro-batch 0"},
    {"a shape that differs",
     [](Stage& stage, int rank) {
       if (rank == 1) stage.tensors[0].count = kWidth + 1, stage.shape[1] = kWidth + 1;
     },
     DSC_ERR_MISMATCH,
     "the outputs of rank 0 are f64 [1, 5], i32 [3], but the inputs of rank 1 are f64 [1, 6], i32 [3]"},
    {"a type that differs",
     [](Stage& stage, int rank) {
       if (rank == 3) stage.tensors[1].dtype = DSC_DTYPE_U32;
     },
     DSC_ERR_MISMATCH,
     "the outputs of rank 2 are f64 [1, 5], i32 [3], but the inputs of rank 3 are f64 [1, 5], u32 [3]"},
    {"no outputs",
     [](Stage& stage, int rank) {
       if (rank == 0) stage.options.n_outputs = 0;
     },
     DSC_ERR_INVALID_ARG, "rank 0: outputs is empty, but stage 0 has send_activation with stage 1"},
    {"inputs of the first stage",
     [](Stage& stage, int rank) {
       if (rank == 0) stage.options.inputs = stage.tensors, stage.options.n_inputs = 1;
     },
     DSC_ERR_INVALID_ARG, "rank 0: inputs lists 1 tensors, expected none"},
    {"a bad type",
     [](Stage& stage, int rank) {
       if (rank == 1) stage.tensors[0].dtype = 77;
     },
     DSC_ERR_INVALID_ARG, "dtype 77 is no element type"},
    {"a table that nobody filled",
     [](Stage& stage, int rank) {
       if (rank == 1) stage.callbacks.struct_size = 0;
     },
     DSC_ERR_INVALID_ARG, "rank 1: callbacks->struct_size is 0, expected at least 80"},
};

int refused_body(rank_t* self) {
  const Case& spoilt = *static_cast<const Case*>(self->arg);
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  {
    Stage stage(self, comm, {"1f1b", 4});
    PASS_ON(stage.prepare());
    spoilt.spoil(stage, self->rank);
    CHECK_RESULT(self, spoilt.expected, stage.run());
    if (!std::strstr(dsc_last_error_message(), spoilt.text))
      FAIL(self, "the message is \"%s\", expected \"%s\" in it", dsc_last_error_message(), spoilt.text);
    PASS_ON(stage.check_counts(0));  // nothing has happened
  }
  {
    Stage stage(self, comm, {"1f1b", 4});  // and the communicator works
    PASS_ON(stage.prepare());
    CHECK_OK(self, stage.run());
  }
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void refused_everywhere(void**) {
  for (const Case& spoilt : kRefused)
    if (run_ranks(4, refused_body, &spoilt) != 0) fail_msg("%s", spoilt.what);
}

int disagree_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  const Layout odd_ones[] = {{"gpipe", 4}, {"1f1b", 5}};
  for (const Layout& odd : odd_ones) {
    Stage stage(self, comm, self->rank == 2 ? odd : Layout{"1f1b", 4});
    PASS_ON(stage.prepare());
    CHECK_RESULT(self, DSC_ERR_MISMATCH, stage.run());
    const std::string text = std::string("rank 2 runs ") + odd.name + " (stages 4, micro-batches " +
                             std::to_string(odd.micro_batches) + ", chunks 1)";
    if (!std::strstr(dsc_last_error_message(), text.c_str())) FAIL(self, "%s", dsc_last_error_message());
  }
  Stage stage(self, comm, {"1f1b", 4});
  PASS_ON(stage.prepare());
  dsc_pipe_schedule_destroy(stage.schedule);
  stage.schedule_options.stage = (self->rank + 1) % self->size;
  CHECK_OK(self, dsc_pipe_schedule_create(&stage.schedule_options, &stage.schedule));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, stage.run());
  CHECK(self, std::strstr(dsc_last_error_message(), "rank s is stage s"));
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void stages_disagree(void**) { assert_int_equal(run_ranks(4, disagree_body, nullptr), 0); }

// ---- what goes wrong during the run
// ---------------------------------------------------------------------------

struct Fault {
  const char* schedule;
  Trouble trouble;
  int rank;
  dsc_result_t expected;
  const char* text;
};

int fault_body(rank_t* self) {
  const Fault& fault = *static_cast<const Fault*>(self->arg);
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  Stage stage(self, comm, {fault.schedule, 4});
  PASS_ON(stage.prepare());
  stage.trouble = fault.trouble;
  stage.trouble_rank = fault.rank;
  const dsc_result_t result = stage.run();
  if (!stage.problem.empty()) FAIL(self, "%s", stage.problem.c_str());
  CHECK_RESULT(self, fault.expected, result);
  if (!std::strstr(dsc_last_error_message(), fault.text))
    FAIL(self, "the message is \"%s\", expected \"%s\" in it", dsc_last_error_message(), fault.text);
  dsc_error_info_t info{};
  info.struct_size = sizeof info;
  CHECK_OK(self, dsc_comm_error(comm, &info));
  CHECK(self, info.revoked == 1);
  CHECK(self, info.code == fault.expected);
  CHECK(self, info.rank == fault.rank);
  CHECK_RESULT(self, DSC_ERR_REVOKED, stage.run());
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_barrier(comm, nullptr, nullptr));
  CHECK_OK(self, dsc_comm_destroy(comm));
  int32_t one = 1, sum = 0;  // the world has nothing to do with it
  CHECK_OK(self, dsc_all_reduce(self->world, &one, &sum, 1, DSC_DTYPE_I32, DSC_OP_SUM, nullptr, nullptr));
  CHECK(self, sum == self->size);
  return 0;
}

void faults_reach_everybody(void**) {
  for (const char* schedule : {"1f1b", "gpipe", "deepspeed_train", "deepspeed_inference"})
    for (int rank = 0; rank < 4; ++rank) {
      char who[80];
      std::snprintf(who, sizeof who, "rank %d: the callback for forward of micro-batch 1", rank);
      const Fault faults[] = {{schedule, Trouble::kReturns, rank, DSC_ERR_CALLBACK, who},
                              {schedule, Trouble::kThrows, rank, DSC_ERR_CALLBACK, "threw: out of paint"}};
      for (const Fault& fault : faults)
        if (run_ranks(4, fault_body, &fault) != 0) fail_msg("%s, rank %d", schedule, rank);
    }
}

int sleep_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  Stage stage(self, comm, {"1f1b", 4});
  PASS_ON(stage.prepare());
  CHECK_OK(self, stage.run());  // what follows makes no channels and no memory any more
  stage.trouble = Trouble::kSleeps;
  stage.trouble_rank = 1;
  CHECK_OK(self, dsc_comm_set_timeout(comm, 300));
  CHECK_RESULT(self, DSC_ERR_TIMEOUT, stage.run());
  if (!stage.problem.empty()) FAIL(self, "%s", stage.problem.c_str());
  CHECK(self, std::strstr(dsc_last_error_message(), "rank 1 ") || stage.troubles == 1);
  CHECK(self, (stage.troubles == 1) == (self->rank == 1));
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void a_stage_that_hangs_is_a_time_out(void**) { assert_int_equal(run_ranks(4, sleep_body, nullptr), 0); }

int reenter_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  {
    Stage stage(self, comm, {"1f1b", 4});
    PASS_ON(stage.prepare());
    stage.trouble = Trouble::kReenters;
    stage.trouble_rank = 2;
    const dsc_result_t result = stage.run();
    if (!stage.problem.empty()) FAIL(self, "%s", stage.problem.c_str());
    CHECK_OK(self, result);
  }
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void a_callback_cannot_reenter(void**) { assert_int_equal(run_ranks(4, reenter_body, nullptr), 0); }

// The same schedule on another communicator, and with larger tensors: channels and memory are made anew.
int moved_body(rank_t* self) {
  dsc_comm_t* comms[2] = {};
  for (auto& comm : comms) PASS_ON(split_off(self, &comm));
  {
    Stage stage(self, comms[0], {"1f1b", 4});
    PASS_ON(stage.prepare());
    CHECK_OK(self, stage.run());
    CHECK_OK(self, dsc_pipe_run(stage.schedule, comms[1], &stage.callbacks, &stage.options, nullptr));
    CHECK_OK(self, dsc_comm_destroy(comms[0]));
    stage.tensors[0].count = 3 << 18;  // as large as messages that are read from the sender's own memory
    stage.shape[0] = 3 << 18;
    stage.shape[1] = 1;
    CHECK_OK(self, dsc_pipe_run(stage.schedule, comms[1], &stage.callbacks, &stage.options, nullptr));
    stage.tensors[0].count = stage.shape[0] = kWidth;
    CHECK_OK(self, dsc_pipe_run(stage.schedule, comms[1], &stage.callbacks, &stage.options, nullptr));
    if (!stage.problem.empty()) FAIL(self, "%s", stage.problem.c_str());
    PASS_ON(stage.check_counts(4));
  }
  CHECK_OK(self, dsc_comm_destroy(comms[1]));
  return 0;
}

void a_schedule_moves_on(void**) { assert_int_equal(run_ranks(3, moved_body, nullptr), 0); }

// Both are the same on all ranks, so the stages agree; but their channels are not one another's.
int crossed_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  {
    Stage one(self, comm, {"1f1b", 4}), other(self, comm, {"1f1b", 4});
    PASS_ON(one.prepare());
    PASS_ON(other.prepare());
    CHECK_OK(self, one.run());
    CHECK_OK(self, other.run());
    CHECK_OK(self, self->rank == 1 ? one.run() : other.run());
    CHECK_OK(self, self->rank == 1 ? other.run() : one.run());
    CHECK_OK(self, other.run());
    PASS_ON(one.check_counts(2));
    PASS_ON(other.check_counts(3));
  }
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void equal_schedules_may_be_crossed(void**) { assert_int_equal(run_ranks(3, crossed_body, nullptr), 0); }

// A schedule outlives the world that it ran in.
int worlds_body(rank_t* self) {
  Stage stage(self, self->world, {"gpipe", 3});
  PASS_ON(stage.prepare());
  for (int world = 1; world <= 3; ++world) {
    if (world > 1) CHECK_OK(self, dsc_init_distributed(&self->options, &self->world));
    dsc_comm_t* comm = nullptr;
    PASS_ON(split_off(self, &comm));
    CHECK_OK(self, dsc_pipe_run(stage.schedule, comm, &stage.callbacks, &stage.options, nullptr));
    if (!stage.problem.empty()) FAIL(self, "%s", stage.problem.c_str());
    PASS_ON(stage.check_counts(world));
    CHECK_OK(self, dsc_finalize());
  }
  return 0;
}

int first_of_worlds_body(rank_t* self) {
  CHECK_OK(self, dsc_init_distributed(&self->options, &self->world));
  return worlds_body(self);
}

void a_schedule_outlives_worlds(void**) {
  assert_int_equal(run_without_world(3, first_of_worlds_body, nullptr), 0);
}

// Rank 1's own handle goes while it runs: the run ends well, and the handle is stale.
int destroyed_schedule_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  {
    Stage stage(self, comm, {"1f1b", 4});
    PASS_ON(stage.prepare());
    stage.trouble = Trouble::kDestroysSchedule;
    stage.trouble_rank = 1;
    CHECK_OK(self, stage.run());
    if (self->rank == 1) {
      CHECK_RESULT(self, DSC_ERR_BAD_HANDLE, stage.run());
      stage.schedule = nullptr;
    }
  }
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void a_schedule_may_be_destroyed_while_it_runs(void**) {
  assert_int_equal(run_ranks(3, destroyed_schedule_body, nullptr), 0);
}

int destroyed_comm_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  Stage stage(self, comm, {"1f1b", 4});
  PASS_ON(stage.prepare());
  stage.trouble = Trouble::kDestroysComm;
  stage.trouble_rank = 1;
  CHECK(self, stage.run() < 0);
  if (self->rank != 1) CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void a_communicator_destroyed_while_it_runs_ends_the_run(void**) {
  const int64_t start = now_ms();
  assert_int_equal(run_ranks(3, destroyed_comm_body, nullptr), 0);
  assert_true(now_ms() - start < 20'000);  // nobody waits for the time-out of 300 s
}

// The thread of rank 1 is cancelled inside a callback: the others are told, and its handles are free again.
void* run_to_be_cancelled(void* stage) {
  static_cast<Stage*>(stage)->run();
  return nullptr;
}

int cancelled_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  Stage stage(self, comm, {"1f1b", 4});
  PASS_ON(stage.prepare());
  if (self->rank == 1) {
    stage.trouble = Trouble::kCancels;
    stage.trouble_rank = 1;
    pthread_t thread;
    void* ended = nullptr;
    CHECK(self, pthread_create(&thread, nullptr, run_to_be_cancelled, &stage) == 0);
    CHECK(self, pthread_join(thread, &ended) == 0);
    CHECK(self, ended == PTHREAD_CANCELED);
    dsc_pipe_instruction_t next{};
    next.struct_size = sizeof next;
    CHECK_OK(self, dsc_pipe_schedule_next(stage.schedule, &next));
  } else {
    CHECK_RESULT(self, DSC_ERR_REVOKED, stage.run());
    if (!std::strstr(dsc_last_error_message(), "rank 1: its thread was cancelled in a callback"))
      FAIL(self, "%s", dsc_last_error_message());
  }
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_barrier(comm, nullptr, nullptr));
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void a_cancelled_thread_ends_the_run(void**) { assert_int_equal(run_ranks(3, cancelled_body, nullptr), 0); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_schedule_runs),
      cmocka_unit_test(refused_everywhere),
      cmocka_unit_test(stages_disagree),
      cmocka_unit_test(faults_reach_everybody),
      cmocka_unit_test(a_stage_that_hangs_is_a_time_out),
      cmocka_unit_test(a_callback_cannot_reenter),
      cmocka_unit_test(a_schedule_moves_on),
      cmocka_unit_test(equal_schedules_may_be_crossed),
      cmocka_unit_test(a_schedule_outlives_worlds),
      cmocka_unit_test(a_schedule_may_be_destroyed_while_it_runs),
      cmocka_unit_test(a_communicator_destroyed_while_it_runs_ends_the_run),
      cmocka_unit_test(a_cancelled_thread_ends_the_run),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
