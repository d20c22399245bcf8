// A stage ends in the middle of a step. All other stages are told which one, whatever they wait for.
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "crew.hpp"
#include "repetitions.h"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kStages = 4;
const char* const kSchedules[] = {"deepspeed_train", "gpipe", "1f1b", "deepspeed_inference"};

enum class End { kKill, kExit, kAbort };

struct Trial {
  uint64_t seed;
  const char* schedule;
  int victim;
  size_t count;  // f32 elements of a micro-batch's activations
  int delay_us;
  End end;
};

Trial make_trial(uint64_t seed, End end) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15u);
  Trial trial{seed, kSchedules[random() % std::size(kSchedules)], 0, 0, 0, end};
  trial.victim = static_cast<int>(random() % kStages);
  trial.count =
      random() % 2 == 0 ? 16 : size_t{1} << 18;  // the larger size is read directly from the sender's memory
  trial.delay_us = static_cast<int>(random() % 30'000);
  return trial;
}

// The context of the callbacks.
struct Stage {
  Rank& rank;
  const Trial& trial;
};

int32_t compute(void* context, const dsc_pipe_call_t*) {
  const Stage& stage = *static_cast<Stage*>(context);
  stage.rank.report.operations.fetch_add(1);
  if (stage.trial.end == End::kExit && stage.rank.rank == stage.trial.victim && stage.rank.ordered(1))
    std::exit(0);  // as a program does that gives up without a message
  return 0;
}

int run_until_failure(Rank& rank, const Trial& trial) {
  if (!rank.join(rank.options())) return 2;
  dsc_pipe_schedule_options_t wanted;
  dsc_pipe_schedule_options_init(&wanted, sizeof wanted);
  wanted.name = trial.schedule;
  wanted.stages = kStages;
  wanted.stage = rank.rank;
  wanted.micro_batches = 6;
  dsc_pipe_schedule_t* schedule = nullptr;
  if (dsc_pipe_schedule_create(&wanted, &schedule) != DSC_OK) return 3;
  Stage stage{rank, trial};
  const dsc_pipe_callbacks_t callbacks{sizeof callbacks, &stage,  compute, compute, compute,
                                       compute,          compute, compute, compute, compute};
  const dsc_tensor_t tensor{sizeof tensor, nullptr, nullptr, nullptr, trial.count, DSC_DTYPE_F32, 0, -1, 0};
  dsc_pipe_run_options_t options;
  dsc_pipe_run_options_init(&options, sizeof options);
  options.n_inputs = rank.rank == 0 ? 0 : 1;
  options.n_outputs = rank.rank == kStages - 1 ? 0 : 1;
  options.inputs = options.n_inputs == 0 ? nullptr : &tensor;
  options.outputs = options.n_outputs == 0 ? nullptr : &tensor;
  if (dsc_pipe_run(schedule, rank.world, &callbacks, &options, nullptr) != DSC_OK) return 4;
  rank.reach(1);
  std::thread aborter([&] {
    if (trial.end != End::kAbort || rank.rank != trial.victim) return;
    rank.await_order(1, 20'000);
    dsc_comm_abort(rank.world);
  });
  dsc_result_t result = DSC_OK;
  while (result == DSC_OK) result = dsc_pipe_run(schedule, rank.world, &callbacks, &options, nullptr);
  rank.record(0, result, rank.world);
  aborter.join();
  rank.record(1, dsc_pipe_run(schedule, rank.world, &callbacks, &options, nullptr), rank.world);
  dsc_pipe_schedule_destroy(schedule);
  return dsc_finalize() == DSC_OK ? 0 : 5;
}

// Describes what is wrong with the outcome of a survivor. Empty if nothing is wrong.
std::string judge(const Crew& crew, const Trial& trial, int rank) {
  if (crew.status(rank) != 0) return format("rank %d ended with status %d", rank, crew.status(rank));
  const dsc_result_t expected = trial.end == End::kKill   ? DSC_ERR_PEER_DEAD
                                : trial.end == End::kExit ? DSC_ERR_PEER_LEFT
                                                          : DSC_ERR_REVOKED;
  const std::string name = format("rank %d (pid %d)", trial.victim, static_cast<int>(crew.pid(trial.victim)));
  const Outcome& first = crew.outcome(rank, 0);
  const Outcome& next = crew.outcome(rank, 1);
  if (first.result != expected || first.code != expected || first.culprit != trial.victim || !first.revoked ||
      std::string(first.text).find(name) == std::string::npos)
    return "the run, " + describe(rank, first) + ", expected " + dsc_result_name(expected) + " of " + name;
  if (next.result >= 0) return "the next run, " + describe(rank, next);
  return "";
}

std::string run_trial(const Trial& trial) {
  Crew crew(kStages, [&trial](Rank& rank) { return run_until_failure(rank, trial); });
  if (!crew.await_stage_of_all(1, 20'000 * slowdown())) return "the ranks did not start" + crew.describe();
  usleep(static_cast<useconds_t>(trial.delay_us));
  const int64_t start_us = now_us();
  crew.order(1);
  if (trial.end == End::kKill) crew.signal(trial.victim, SIGKILL);
  const bool ended = crew.await_end_of_all(30'000 * slowdown());
  std::string problem = ended ? "" : "a rank hangs";
  for (int rank = 0; rank < kStages && problem.empty(); ++rank) {
    if (rank == trial.victim && trial.end != End::kAbort) continue;
    problem = judge(crew, trial, rank);
    if (problem.empty() && crew.outcome(rank, 0).end_us - start_us > kAtOnceUs * slowdown())
      problem = format("rank %d was told late", rank);
  }
  return problem.empty() ? problem : problem + crew.describe();
}

void end_stages(int usual, End end) {
  const auto seed = static_cast<uint64_t>(setting("DSC_TEST_SEED", now_us() % 1'000'000'000));
  print_message("DSC_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  const Traces traces;
  const int trials = test_repetitions(usual / slowdown(), 2);
  for (int i = 0; i < trials; ++i) {
    const Trial trial = make_trial(seed + static_cast<uint64_t>(i), end);
    const std::string problem = run_trial(trial);
    if (!problem.empty())
      fail_msg("seed %llu, %s, stage %d, %zu elements, after %d us: %s",
               static_cast<unsigned long long>(trial.seed), trial.schedule, trial.victim, trial.count,
               trial.delay_us, problem.c_str());
  }
  const std::string left = traces.left();
  if (!left.empty()) fail_msg("left behind:%s", left.c_str());
}

void test_stage_is_killed(void**) { end_stages(30, End::kKill); }
void test_stage_exits_in_a_callback(void**) { end_stages(10, End::kExit); }
void test_run_is_aborted_from_another_thread(void**) { end_stages(10, End::kAbort); }

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_stage_is_killed),
      cmocka_unit_test(test_stage_exits_in_a_callback),
      cmocka_unit_test(test_run_is_aborted_from_another_thread),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
