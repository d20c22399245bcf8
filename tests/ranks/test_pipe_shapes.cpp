// dsc_pipe_run: shapes that differ between micro-batches, and memory that the caller provides.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "pipe_stage.hpp"

extern "C" {
#include "gpu.h"
}

namespace {

using namespace pipe;

int run_once(rank_t* self, Stage& stage, const char* name) {
  double mean = -1;
  const dsc_result_t result = stage.run(&mean);
  if (!stage.problem.empty()) FAIL(self, "%s", stage.problem.c_str());
  if (result != DSC_OK) FAIL(self, "%s: %s", name, dsc_last_error_message());
  if (std::abs(mean - stage.expected_mean()) > 1e-12 * std::abs(mean))
    FAIL(self, "the mean loss of %s is %.17g, expected %.17g", name, mean, stage.expected_mean());
  return 0;
}

int run_twice(rank_t* self, dsc_comm_t* comm, const Layout& layout) {
  Stage stage(self, comm, layout);
  PASS_ON(stage.prepare());
  for (int run = 1; run <= 2; ++run) {
    PASS_ON(run_once(self, stage, layout.name));
    PASS_ON(stage.check_counts(run));
  }
  return 0;
}

const char* const kNames[] = {"gpipe",     "1f1b",   "deepspeed_train", "zb_h1",      "zb_h2",
                              "zb_v",      "v_half", "v_min",           "dualpipe_v", "interleaved_1f1b",
                              "looped_bfs"};

// At least four micro-batches, so that every number of rows occurs, including 0.
int variable_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  for (const char* name : kNames)
    for (const int32_t messages : {DSC_PIPE_MESSAGES_WHEN_NEEDED, DSC_PIPE_MESSAGES_AT_ONCE}) {
      const bool is_deepspeeds = std::strcmp(name, "deepspeed_train") == 0;
      // this schedule fixes the positions of its messages
      if (is_deepspeeds && messages == DSC_PIPE_MESSAGES_AT_ONCE) continue;
      for (const int32_t m : {2 * self->size, 3 * self->size}) {
        PASS_ON(run_twice(self, comm, {name, m, 0, false, messages, 0, true}));
        if (!is_deepspeeds) PASS_ON(run_twice(self, comm, {name, m, 0, true, messages, 0, true}));
      }
    }
  PASS_ON(run_twice(self, comm, {"deepspeed_inference", 5, 0, true, 0, 0, true}));
  PASS_ON(run_twice(self, comm, {"looped_bfs", 4, 3, false, 0, 0, true}));
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void shapes_vary(void**) {
  const int32_t most = test_scale() == 1 ? 5 : 3;
  for (int32_t stages = 1; stages <= most; ++stages)
    assert_int_equal(run_ranks(stages, variable_body, nullptr), 0);
}

// ---- outputs of wrong sizes ----

struct Sizes {
  int64_t rows, columns;
  const char* text;
};

const Sizes kWrong[] = {
    {kMostRows + 1, kWidth,
     "the shape of output 0 is f64 [4, 5], expected at most the 15 elements of f64 [3, 5]"},
    {-1, kWidth, "the shape of output 0 is f64 [-1, 5]"},
    {int64_t{1} << 62, 16, "the shape of output 0 is f64 [4611686018427387904, 16]"},
    {0, -3, "the shape of output 0 is f64 [0, -3]"},
};

struct WrongSizes {
  Stage* stage;
  const Sizes* sizes;
  int rank;
};

int32_t write_wrong_sizes(void* context, const dsc_pipe_call_t* call) {
  const auto& wrong = *static_cast<WrongSizes*>(context);
  const bool is_here = wrong.rank == 1 && call->instruction->micro_batch == 2;
  if (!is_here) return 0;
  call->output_shapes[0][0] = wrong.sizes->rows;
  call->output_shapes[0][1] = wrong.sizes->columns;
  return 0;
}

int32_t do_nothing(void*, const dsc_pipe_call_t*) { return 0; }

int wrong_sizes_body(rank_t* self) {
  const auto& sizes = *static_cast<const Sizes*>(self->arg);
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  {
    Stage stage(self, comm, {"1f1b", 4, 0, false, 0, 0, true});
    PASS_ON(stage.prepare());
    WrongSizes wrong{&stage, &sizes, self->rank};
    stage.callbacks.context = &wrong;
    for (auto* callback :
         {&stage.callbacks.load_micro_batch, &stage.callbacks.backward, &stage.callbacks.reduce_tied_grads,
          &stage.callbacks.reduce_grads, &stage.callbacks.optimizer_step})
      *callback = do_nothing;
    stage.callbacks.forward = write_wrong_sizes;
    CHECK_RESULT(self, DSC_ERR_CALLBACK, stage.run());
    const char* message = dsc_last_error_message();
    if (!std::strstr(message, sizes.text) || !std::strstr(message, "rank 1: the callback for forward of"))
      FAIL(self, "the message is \"%s\", expected \"%s\" in it", message, sizes.text);
  }
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void outputs_that_do_not_fit(void**) {
  for (const Sizes& sizes : kWrong)
    if (run_ranks(3, wrong_sizes_body, &sizes) != 0) fail_msg("%s", sizes.text);
}

// ---- memory of the caller ----

constexpr size_t kFence = 64;
constexpr char kMark = 0x5a;

// Memory with guard bytes on both sides, at an address without any alignment.
class Memory {
 public:
  Memory(size_t bytes, size_t shift) : bytes_(bytes), shift_(shift) {
    const size_t all = bytes + shift + 2 * kFence;
    block_ = static_cast<char*>(gpu_wanted() ? gpu_alloc(all) : std::malloc(all));
    const std::string marks(all, kMark);
    if (gpu_wanted())
      gpu_upload(block_, marks.data(), all);
    else
      std::memcpy(block_, marks.data(), all);
  }
  ~Memory() { gpu_wanted() ? gpu_free(block_) : std::free(block_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void give(dsc_pipe_run_options_t& options) const {
    options.memory = block_ + shift_ + kFence;
    options.memory_bytes = bytes_;
  }
  bool is_whole() const {
    std::string now(bytes_ + shift_ + 2 * kFence, '\0');
    if (gpu_wanted())
      gpu_download(now.data(), block_, now.size());
    else
      std::memcpy(now.data(), block_, now.size());
    const std::string fence(kFence, kMark);
    return now.compare(shift_, kFence, fence) == 0 && now.compare(now.size() - kFence, kFence, fence) == 0;
  }

 private:
  char* block_;
  size_t bytes_, shift_;
};

int own_memory_of(rank_t* self, dsc_comm_t* comm, const Layout& layout) {
  Stage stage(self, comm, layout);
  PASS_ON(stage.prepare());
  size_t bytes = 1;
  CHECK_OK(self, dsc_pipe_run_bytes(stage.schedule, &stage.options, &bytes));
  CHECK(self, (bytes > 0) == (stage.options.n_inputs + stage.options.n_outputs > 0));
  // otherwise memory is NULL on all ranks, because there is only one stage
  const bool is_asked_of = bytes > 0;
  {
    const Memory one(bytes, 3), other(bytes, 0);
    for (const Memory* memory : {&one, &one, &other}) {
      if (is_asked_of) memory->give(stage.options);
      PASS_ON(run_once(self, stage, layout.name));
    }
    if (gpu_wanted()) gpu_synchronize(nullptr);
    CHECK(self, one.is_whole() && other.is_whole());
  }
  stage.options.memory = nullptr;
  stage.options.memory_bytes = 0;
  PASS_ON(run_once(self, stage, layout.name));
  {
    const Memory again(bytes + 1000, 1);
    if (is_asked_of) again.give(stage.options);
    PASS_ON(run_once(self, stage, layout.name));
    if (gpu_wanted()) gpu_synchronize(nullptr);
  }
  return stage.check_counts(5);
}

int own_memory_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  for (const char* name : kNames)
    for (const bool variable : {false, true})
      PASS_ON(own_memory_of(self, comm, {name, 2 * self->size, 0, false, 0, 0, variable}));
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void memory_of_the_callers(void**) {
  for (int32_t stages = 1; stages <= 3; ++stages)
    assert_int_equal(run_ranks(stages, own_memory_body, nullptr), 0);
}

// ---- errors that are found before anything runs ----

alignas(256) char some_memory[1 << 16];

struct Case {
  const char* what;
  void (*spoil)(Stage& stage, int rank);
  dsc_result_t expected;
  const char* text;            // part of the message on every rank
  const char* text_on_device;  // the message for memory on a device; null: the same message
};

const Case kRefused[] = {
    {"neither yes nor no",
     [](Stage& stage, int rank) {
       if (rank == 1) stage.options.variable_shapes = 2;
     },
     DSC_ERR_INVALID_ARG, "rank 1: options->variable_shapes is 2, expected 0 or 1", nullptr},
    {"a wrong flag",
     [](Stage& stage, int rank) {
       if (rank == 1) stage.options.keep_replaced = 5;
     },
     DSC_ERR_INVALID_ARG, "rank 1: options->keep_replaced is 5, expected 0 or 1", nullptr},
    {"variable on one rank",
     [](Stage& stage, int rank) { stage.options.variable_shapes = rank == 2 ? 1 : 0; }, DSC_ERR_MISMATCH,
     "rank 2 runs 1f1b (stages 3, micro-batches 4, chunks 1) with variable shapes", nullptr},
    {"no largest shape",
     [](Stage& stage, int rank) {
       if (rank == 1) stage.tensors[1].shape = nullptr, stage.tensors[1].ndim = 0;
     },
     DSC_ERR_INVALID_ARG,
     "rank 1: inputs: parameter 1 has no shape, expected the largest one: shapes are variable", nullptr},
    {"too little memory",
     [](Stage& stage, int) {
       stage.options.memory = some_memory;
       stage.options.memory_bytes = 100;
     },
     DSC_ERR_INVALID_ARG, "rank 0: memory has 100 bytes, expected at least ",
     "rank 0: memory: device is 0, expected -1: data is host memory"},
    {"a byte too little, where alignment costs nothing",
     [](Stage& stage, int) {
       size_t bytes = 0;
       dsc_pipe_run_bytes(stage.schedule, &stage.options, &bytes);
       stage.options.memory = some_memory;
       stage.options.memory_bytes = bytes - 1;
     },
     DSC_ERR_INVALID_ARG, " bytes, expected at least ", "rank 0: memory: device is 0, expected -1"},
    {"memory on one rank",
     [](Stage& stage, int rank) {
       if (rank == 2) stage.options.memory = some_memory, stage.options.memory_bytes = sizeof some_memory;
     },
     DSC_ERR_MISMATCH, "in memory of the caller's", ""},
    {"bytes of nothing",
     [](Stage& stage, int rank) {
       if (rank == 2) stage.options.memory_bytes = 7;
     },
     DSC_ERR_INVALID_ARG, "rank 2: options->memory is NULL, expected 7 bytes, as memory_bytes says", nullptr},
};

int refused_body(rank_t* self) {
  const Case& spoilt = *static_cast<const Case*>(self->arg);
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  {
    Stage stage(self, comm, {"1f1b", 4, 0, false, 0, 0, true});
    PASS_ON(stage.prepare());
    spoilt.spoil(stage, self->rank);
    CHECK_RESULT(self, spoilt.expected, stage.run());
    const char* text = gpu_wanted() && spoilt.text_on_device ? spoilt.text_on_device : spoilt.text;
    if (!std::strstr(dsc_last_error_message(), text))
      FAIL(self, "the message is \"%s\", expected \"%s\" in it", dsc_last_error_message(), text);
    PASS_ON(stage.check_counts(0));
  }
  PASS_ON(run_twice(self, comm, {"1f1b", 4, 0, false, 0, 0, true}));
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void refused_everywhere(void**) {
  for (const Case& spoilt : kRefused) {
    const bool is_other_error = spoilt.text_on_device && *spoilt.text_on_device == '\0';
    // on a device a rank reports its own wrong memory before the other ranks' errors
    if (gpu_wanted() && is_other_error) continue;
    if (run_ranks(3, refused_body, &spoilt) != 0) fail_msg("%s", spoilt.what);
  }
}

// The largest shape only limits the size of the memory, not each dimension: an output may have more rows and
// fewer columns.
int turned_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  {
    Stage stage(self, comm, {"1f1b", 8, 0, false, 0, 0, true});
    PASS_ON(stage.prepare());
    std::swap(stage.shape[0], stage.shape[1]);
    PASS_ON(run_once(self, stage, "turned"));
  }
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void only_elements_are_limited(void**) { assert_int_equal(run_ranks(3, turned_body, nullptr), 0); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(shapes_vary),
      cmocka_unit_test(outputs_that_do_not_fit),
      cmocka_unit_test(memory_of_the_callers),
      cmocka_unit_test(refused_everywhere),
      cmocka_unit_test(only_elements_are_limited),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
