// dsc_pipe_run: a failure on one rank during a run is reported on all ranks.
#include <pthread.h>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "pipe_stage.hpp"

extern "C" {
#include "gpu.h"
}

namespace {

using namespace pipe;

// ---- failures during the run ----

struct Fault {
  Layout layout;
  Trouble trouble;
  int rank;
  dsc_result_t expected;
  const char* text;
};

int fault_body(rank_t* self) {
  const Fault& fault = *static_cast<const Fault*>(self->arg);
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  Stage stage(self, comm, fault.layout);
  PASS_ON(stage.prepare());
  stage.trouble = fault.trouble;
  stage.trouble_rank = fault.rank;
  const dsc_result_t result = stage.run();
  if (!stage.problem.empty()) FAIL(self, "%s", stage.problem.c_str());
  CHECK_RESULT(self, fault.expected, result);
  CHECK(self, fault.trouble != Trouble::kReturns ||
                  std::strstr(dsc_last_error_message(), " returned 7: out of ink"));
  if (!std::strstr(dsc_last_error_message(), fault.text))
    FAIL(self, "the message is \"%s\", expected \"%s\" in it", dsc_last_error_message(), fault.text);
  dsc_error_info_t info{};
  info.struct_size = sizeof info;
  CHECK_OK(self, dsc_comm_error_info(comm, &info));
  CHECK(self, info.revoked == 1);
  CHECK(self, info.code == fault.expected);
  CHECK(self, info.rank == fault.rank);
  CHECK_RESULT(self, DSC_ERR_REVOKED, stage.run());
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_barrier(comm, nullptr, nullptr));
  CHECK_OK(self, dsc_comm_destroy(comm));
  int32_t one = 1, sum = 0;  // the world still works
  CHECK_OK(self, dsc_all_reduce(self->world, &one, &sum, 1, DSC_DTYPE_I32, DSC_OP_SUM, nullptr, nullptr));
  CHECK(self, sum == self->size);
  return 0;
}

void faults_reach_everybody(void**) {
  const Layout layouts[] = {{"1f1b", 4},
                            {"gpipe", 4},
                            {"deepspeed_train", 4},
                            {"deepspeed_inference", 4},
                            {"zb_v", 4},
                            {"dualpipe_v", 8},
                            {"1f1b", 4, 0, false, 0, 0, true},
                            {"zb_v", 4, 0, false, 0, 0, true}};
  for (const Layout& layout : layouts)
    for (int rank = 0; rank < 4; ++rank) {
      char who[80];
      std::snprintf(who, sizeof who, "rank %d: the callback for forward of micro-batch 1", rank);
      const Fault faults[] = {{layout, Trouble::kReturns, rank, DSC_ERR_CALLBACK, who},
                              {layout, Trouble::kThrows, rank, DSC_ERR_CALLBACK, "threw: out of paint"}};
      for (const Fault& fault : faults)
        if (run_ranks(4, fault_body, &fault) != 0) fail_msg("%s, rank %d", layout.name, rank);
    }
}

int sleep_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  Stage stage(self, comm, *static_cast<const Layout*>(self->arg));
  PASS_ON(stage.prepare());
  CHECK_OK(self, stage.run());  // later runs create no channels and no memory
  stage.trouble = Trouble::kSleeps;
  stage.trouble_rank = 1;
  CHECK_OK(self, dsc_comm_set_timeout(comm, 3000));
  CHECK_RESULT(self, DSC_ERR_TIMEOUT, stage.run());
  // On devices callbacks may have seen invalid data of messages that were canceled.
  if (!stage.problem.empty() && !gpu_wanted()) FAIL(self, "%s", stage.problem.c_str());
  CHECK(self, (stage.troubles == 1) == (self->rank == 1));
  dsc_error_info_t info{};
  info.struct_size = sizeof info;
  CHECK_OK(self, dsc_comm_error_info(comm, &info));
  CHECK(self, info.code == DSC_ERR_TIMEOUT);
  // the failure is in one of the pipeline's own channels, so it names no operation of the user
  CHECK(self, info.sequence == 0 && info.operation[0] == '\0');
  CHECK_OK(self, dsc_comm_destroy(comm));
  return 0;
}

const Layout kSome[] = {{"1f1b", 4}, {"1f1b", 4, 0, false, 0, 0, true}, {"zb_v", 4}};

void a_stage_that_hangs_is_a_time_out(void**) {
  for (const Layout& layout : kSome) assert_int_equal(run_ranks(4, sleep_body, &layout), 0);
}

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

// After a failed run the ranks shrink the communicator and run the same schedule on the new communicator.
int shrink_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  dsc_comm_t* shrunk = nullptr;
  PASS_ON(split_off(self, &comm));
  Stage stage(self, comm, *static_cast<const Layout*>(self->arg));
  PASS_ON(stage.prepare());
  stage.trouble = Trouble::kReturns;
  stage.trouble_rank = 1;
  CHECK(self, stage.run() < 0);
  CHECK_OK(self, dsc_comm_shrink(comm, nullptr, &shrunk));
  CHECK_OK(self, dsc_comm_destroy(comm));
  stage.move_to(shrunk);
  double mean = 0;
  CHECK_OK(self, stage.run(&mean));
  if (!stage.problem.empty()) FAIL(self, "%s", stage.problem.c_str());
  CHECK(self, std::abs(mean - stage.expected_mean()) <= 1e-12 * std::abs(mean));
  PASS_ON(stage.check_counts(1));
  CHECK_OK(self, dsc_comm_destroy(shrunk));
  return 0;
}

void a_schedule_runs_again_after_shrink(void**) {
  for (const Layout& layout : kSome) assert_int_equal(run_ranks(3, shrink_body, &layout), 0);
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
  assert_true(now_ms() - start < 20'000);  // no rank waits for the time-out, which is longer
}

// The thread of rank 1 is canceled inside a callback. The other ranks are told, and the handles of rank 1 can
// be destroyed.
struct Cancelled {
  Stage* stage;
  rank_t* self;
};

void* run_to_be_cancelled(void* opaque) {
  const auto& cancelled = *static_cast<Cancelled*>(opaque);
  if (gpu_wanted()) gpu_bind(cancelled.self->options.device);
  cancelled.stage->run();
  return nullptr;
}

[[maybe_unused]] int cancelled_body(rank_t* self) {
  dsc_comm_t* comm = nullptr;
  PASS_ON(split_off(self, &comm));
  Stage stage(self, comm, {"1f1b", 4});
  PASS_ON(stage.prepare());
  if (self->rank == 1) {
    stage.trouble = Trouble::kCancels;
    stage.trouble_rank = 1;
    Cancelled cancelled{&stage, self};
    pthread_t thread;
    void* ended = nullptr;
    CHECK(self, pthread_create(&thread, nullptr, run_to_be_cancelled, &cancelled) == 0);
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

void a_cancelled_thread_ends_the_run(void**) {
#if defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
  print_message(
      "left out: the address sanitizer of gcc 12 ends the program when a cancelled thread unwinds\n");
#else
  assert_int_equal(run_ranks(3, cancelled_body, nullptr), 0);
#endif
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(faults_reach_everybody),
      cmocka_unit_test(a_stage_that_hangs_is_a_time_out),
      cmocka_unit_test(a_schedule_runs_again_after_shrink),
      cmocka_unit_test(a_callback_cannot_reenter),
      cmocka_unit_test(a_communicator_destroyed_while_it_runs_ends_the_run),
      cmocka_unit_test(a_cancelled_thread_ends_the_run),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
