// A rank dies while the ranks meet, make groups and share memory. The other ranks are told within the
// deadline.
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>

#include "crew.hpp"
#include "repetitions.h"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kAtOnce = 8;
constexpr int kTimeoutMs = 3000;  // enough time for a slow rank
constexpr size_t kBytes = size_t{4} << 20;

enum Step { kInit, kSplit, kGroup, kMemory, kWork, kSteps };
const char* const kStepNames[] = {"init", "split", "create_group", "mem_alloc", "barrier"};

dsc_result_t take(Rank& rank, Step step) {
  const int32_t ranks[] = {2, 1, 0};
  dsc_comm_t* group = nullptr;
  void* memory = nullptr;
  dsc_init_options_t options = rank.options();
  options.init_timeout_ms = kTimeoutMs * slowdown();
  options.timeout_ms = kTimeoutMs * slowdown();
  switch (step) {
    case kInit:
      return dsc_init_distributed(&options, &rank.world);
    case kSplit:
      return dsc_comm_split(rank.world, 0, 0, nullptr, &group);
    case kGroup:
      return dsc_comm_create_group(rank.world, ranks, 3, nullptr, &group);
    case kMemory:
      return dsc_mem_alloc(rank.world, kBytes, DSC_MEMORY_KIND_HOST, &memory);
    default:
      return dsc_barrier(rank.world, nullptr, nullptr);
  }
}

enum Stage { kStarted = 1, kMet = 2, kTold = 3 };

// Stores in `numbers` the step that failed and when it began.
int start_up_until_failure(Rank& rank) {
  rank.reach(kStarted);
  for (int turn = 0;; ++turn) {
    const Step step = turn == 0 ? kInit : turn > 12 ? kWork : static_cast<Step>(1 + turn % 4);
    rank.report.numbers[0] = step;
    rank.report.numbers[1] = now_us();
    const dsc_result_t result = take(rank, step);
    rank.reach(result == DSC_OK ? kMet : kStarted);
    if (result == DSC_OK) continue;
    rank.record(0, result, rank.world);
    rank.reach(kTold);
    rank.await_order(1, 60'000);  // ranks that end now would count as dead for the others
    return 0;
  }
}

struct Trial {
  std::unique_ptr<Crew> crew;
  uint64_t seed;
  int victim;
  int delay_us;
  int64_t killed_us;
};

// The victim dies after some time, or immediately or shortly after it has met the others.
Trial start(uint64_t seed, bool meets) {
  const int64_t span_us = (meets ? 4'000 : seed / 2 % 2 == 0 ? 8'000 : 40'000) * slowdown();
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15u);
  Trial trial{nullptr, seed, static_cast<int>(random() % 3),
              static_cast<int>(random() % static_cast<uint64_t>(span_us)), 0};
  trial.crew = std::make_unique<Crew>(3, start_up_until_failure, static_cast<int>(seed % kAtOnce));
  if (meets) trial.crew->await_stage(trial.victim, kMet, 20'000 * slowdown());
  usleep(static_cast<useconds_t>(trial.delay_us));
  trial.killed_us = trial.crew->signal(trial.victim, SIGKILL);
  return trial;
}

std::string judge(const Trial& trial, int (&failed_at)[kSteps]) {
  Crew& crew = *trial.crew;
  for (int rank = 0; rank < crew.size(); ++rank)
    if (rank != trial.victim && !crew.await_stage(rank, kTold, (kTimeoutMs + 2 * kAtOnceMs) * slowdown()))
      return "a rank hangs";
  crew.order(1);
  if (!crew.await_end_of_all(20'000 * slowdown())) return "a rank does not end";
  for (int rank = 0; rank < crew.size(); ++rank) {
    if (rank == trial.victim) continue;
    if (crew.status(rank) != 0) return format("rank %d ended with status %d", rank, crew.status(rank));
    const Outcome& outcome = crew.outcome(rank, 0);
    const auto step = static_cast<size_t>(crew.report(rank).numbers[0]);
    const std::string text = outcome.text;
    // "missing: rank 0, 2": these two did not arrive at a second meeting
    const size_t list = text.find("missing: rank");
    const bool named =
        outcome.culprit == trial.victim ||
        text.find(format("rank %d (", trial.victim)) != std::string::npos ||
        text.find(format("pid %d ", static_cast<int>(crew.pid(trial.victim)))) != std::string::npos ||
        (list != std::string::npos && text.find(std::to_string(trial.victim), list) < text.find(';', list));
    if ((outcome.result != DSC_ERR_PEER_DEAD && outcome.result != DSC_ERR_TIMEOUT) || !named)
      return std::string(kStepNames[step]) + ": " + describe(rank, outcome);
    const int64_t from_us = std::max(trial.killed_us, crew.report(rank).numbers[1]);
    if (outcome.end_us - from_us > (kTimeoutMs + kAtOnceMs) * slowdown() * int64_t{1000})
      return std::string(kStepNames[step]) + " took too long: " + describe(rank, outcome);
    ++failed_at[step];
  }
  return "";
}

void test_rank_killed_during_start_up(void**) {
  const uint64_t seed = static_cast<uint64_t>(setting("DSC_TEST_SEED", now_us() % 1'000'000'000));
  print_message("DSC_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  const int kills = test_repetitions(slowdown() == 1 ? 80 : 8, kAtOnce);
  const Traces traces;
  int failed_at[kSteps] = {};
  for (int done = 0; done < kills; done += kAtOnce) {
    std::vector<Trial> trials;
    for (int i = 0; i < kAtOnce; ++i)
      trials.push_back(start(seed + static_cast<uint64_t>(done + i), i % 2 == 1));
    std::string problem;
    for (const Trial& trial : trials) {
      problem = judge(trial, failed_at);
      if (problem.empty()) continue;
      problem = format("seed %llu, rank %d killed after %d us: ", static_cast<unsigned long long>(trial.seed),
                       trial.victim, trial.delay_us) +
                problem + trial.crew->describe();
      break;
    }
    trials.clear();
    if (!problem.empty()) fail_msg("%s", problem.c_str());
  }
  const std::string left = traces.left();
  if (!left.empty()) fail_msg("left behind:%s", left.c_str());
  for (size_t step = 0; step < kSteps; ++step) print_message("%s: %d, ", kStepNames[step], failed_at[step]);
  print_message("survivors told\n");
  assert_true(failed_at[kInit] > 0);
  assert_true(failed_at[kSplit] + failed_at[kGroup] + failed_at[kMemory] > 0);
}

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_rank_killed_during_start_up, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
