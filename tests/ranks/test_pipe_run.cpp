// dsc_pipe_run: correct results, and errors that are found before anything runs.
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>

#include "pipe_stage.hpp"

namespace {

using namespace pipe;

int run_twice(rank_t* self, dsc_comm_t* comm, const Layout& layout) {
  Stage stage(self, comm, layout);
  PASS_ON(stage.prepare());
  for (int run = 1; run <= 2; ++run) {  // the second run reuses the channels and the memory of the first
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

// Chunks, split backward passes and pairs. Also without backward passes, and with messages at PyTorch's
// positions.
int chunked_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  const int32_t stages = self->size;
  for (const int32_t messages : {DSC_PIPE_MESSAGES_WHEN_NEEDED, DSC_PIPE_MESSAGES_AT_ONCE}) {
    for (const int32_t m : {2 * stages, 3 * stages}) {
      for (const char* name :
           {"zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "dualpipe_v", "interleaved_1f1b", "looped_bfs"})
        for (const bool forward_only : {false, true})
          PASS_ON(run_twice(self, comm, {name, m, 0, forward_only, messages}));
      for (const char* name : {"zb_v", "dualpipe_v", "interleaved_1f1b"})
        for (const int32_t format :
             {DSC_PIPE_FORMAT_PYTORCH, DSC_PIPE_FORMAT_PYTORCH_COMMS, DSC_PIPE_FORMAT_JSON})
          PASS_ON(run_twice(self, comm, {name, m, 0, false, messages, format}));
      PASS_ON(run_twice(self, comm, {"deepspeed_train", m, 0, false, 0, DSC_PIPE_FORMAT_DEEPSPEED}));
      PASS_ON(run_twice(self, comm, {"interleaved_1f1b", m, 3, false, messages}));
      PASS_ON(run_twice(self, comm, {"looped_bfs", m, 3, false, messages}));
    }
    PASS_ON(run_twice(self, comm, {"zb_v", 1, 0, false, messages}));
    PASS_ON(run_twice(self, comm, {"zb_h2", 2, 0, false, messages}));
  }
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void chunks_and_halves_run(void**) {
  const int32_t most = test_scale() == 1 ? 5 : 3;
  for (int32_t stages = 1; stages <= most; ++stages)
    assert_int_equal(run_ranks(stages, chunked_body, nullptr), 0);
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

// Counts all-reduces: the ranks run one at the end if any of them asks for the mean loss, and only then.
uint64_t all_reduces(dsc_comm_t* comm) {
  dsc_op_stats_t stats[16]{};
  stats[0].struct_size = sizeof stats[0];
  size_t n = 0;
  if (dsc_comm_stats(comm, stats, std::size(stats), &n) != DSC_OK) return UINT64_MAX;
  uint64_t count = 0;
  for (size_t i = 0; i < n; ++i)
    if (std::strcmp(stats[i].operation, "all_reduce") == 0) count += stats[i].count;
  return count;
}

int mean_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  {
    Stage stage(self, comm, {"1f1b", 4});
    PASS_ON(stage.prepare());
    uint64_t met = 0;
    for (const unsigned asking : {0U, 1U, 0U, 2U, 4U, 7U, 0U}) {  // bit r is set if rank r asks
      const bool asks = (asking >> self->rank & 1) != 0;
      double mean = -1;
      CHECK_OK(self,
               dsc_pipe_run(stage.schedule, comm, &stage.callbacks, &stage.options, asks ? &mean : nullptr));
      if (!stage.problem.empty()) FAIL(self, "%s", stage.problem.c_str());
      CHECK(self, !asks || std::abs(mean - stage.expected_mean()) <= 1e-12 * std::abs(mean));
      met += asking != 0 ? 1 : 0;
      CHECK(self, all_reduces(comm) == met);
    }
    PASS_ON(stage.check_counts(7));
  }
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

void ranks_meet_for_a_mean_loss(void**) { assert_int_equal(run_ranks(3, mean_body, nullptr), 0); }

// ---- errors of one rank are reported on all ranks ----

struct Case {
  const char* what;
  void (*spoil)(Stage& stage, int rank);
  dsc_result_t expected;
  const char* text;  // part of the message on every rank
};

const Case kRefused[] = {
    {"a missing callback",
     [](Stage& stage, int rank) {
       if (rank == 2) stage.callbacks.backward = nullptr;
     },
     DSC_ERR_INVALID_ARG,
     "rank 2: there is no callback for backward, expected one: the schedule has backward of micro-batch 0"},
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
     DSC_ERR_INVALID_ARG, "dtype is 77, expected 1 (i8) to 13 (bool)"},
    {"a table that nobody filled",
     [](Stage& stage, int rank) {
       if (rank == 1) stage.callbacks.struct_size = 0;
     },
     DSC_ERR_INVALID_ARG, "rank 1: callbacks->struct_size is 0, expected 80 to 65536: was it initialised?"},
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
    PASS_ON(stage.check_counts(0));  // nothing was computed
  }
  {
    Stage stage(self, comm, {"1f1b", 4});  // the communicator still works
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

// Runs the same schedule on another communicator and with larger tensors, which needs new channels and new
// memory.
int moved_body(rank_t* self) {
  dsc_comm_t* comms[2] = {};
  for (auto& comm : comms) PASS_ON(split_off(self, &comm));
  {
    Stage stage(self, comms[0], {"1f1b", 4});
    PASS_ON(stage.prepare());
    CHECK_OK(self, stage.run());
    CHECK_OK(self, dsc_pipe_run(stage.schedule, comms[1], &stage.callbacks, &stage.options, nullptr));
    CHECK_OK(self, dsc_comm_destroy(comms[0]));
    stage.tensors[0].count = 3 << 18;  // large enough that messages are read from the sender's own memory
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

// The ranks use two equal schedules in different order. The stages agree, but each schedule has its own
// channels.
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

// Rank 1 destroys the handle of its schedule during the run. The run succeeds, and the handle is invalid
// afterwards.
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

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_schedule_runs),
      cmocka_unit_test(ranks_meet_for_a_mean_loss),
      cmocka_unit_test(chunks_and_halves_run),
      cmocka_unit_test(refused_everywhere),
      cmocka_unit_test(stages_disagree),
      cmocka_unit_test(a_schedule_moves_on),
      cmocka_unit_test(equal_schedules_may_be_crossed),
      cmocka_unit_test(a_schedule_outlives_worlds),
      cmocka_unit_test(a_schedule_may_be_destroyed_while_it_runs),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
