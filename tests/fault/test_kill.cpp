// A rank is killed at any moment: the others are told at once, who it was, and nothing stays behind.
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "crew.hpp"
#include "random_work.hpp"
#include "traces.hpp"

// Last, since it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int64_t kMostUs = 2'000'000;
constexpr size_t kMostBytes = size_t{8} << 20;

enum Step : size_t { kFirst, kNext, kOther, kFinalize };

struct Trial {
  uint64_t seed;
  int size;
  int victim;
  int delay_us;
  bool live_child;
};

Trial make_trial(uint64_t seed, bool live_child) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15u);
  Trial trial{seed, 2 + static_cast<int>(random() % 3), 0, static_cast<int>(random() % 40'000), live_child};
  trial.victim = static_cast<int>(random() % static_cast<uint64_t>(trial.size));
  return trial;
}

int work_until_failure(Rank& rank, const Trial& trial) {
  if (!rank.join(rank.options())) return 2;
  RandomWork work(rank, trial.seed, kMostBytes);
  if (!work.prepare()) return 3;
  if (trial.live_child && rank.rank == trial.victim) {
    const pid_t child = fork();
    if (child == 0)
      for (;;) pause();
    rank.report.numbers[1] = child;
  }
  rank.reach(1);
  dsc_result_t result = DSC_OK;
  while (result == DSC_OK && work.wrong().empty()) {
    result = work.step();
    rank.report.operations.fetch_add(1);
  }
  rank.report.numbers[0] = work.reversed();
  rank.record(kFirst, result, work.comm());
  rank.record(kNext, dsc_barrier(work.comm(), nullptr, nullptr), work.comm());
  rank.record(kOther, dsc_barrier(work.other(), nullptr, nullptr), work.other());
  rank.record(kFinalize, dsc_finalize(), nullptr);
  if (work.wrong().empty()) return 0;
  rank.note("%s", work.wrong().c_str());
  return 4;
}

// What is wrong with what a survivor met; empty: nothing.
std::string judge(const Crew& crew, const Trial& trial, int rank) {
  if (crew.status(rank) != 0) return format("rank %d ended with status %d", rank, crew.status(rank));
  const bool reversed = crew.report(rank).numbers[0] != 0;
  const int mirrored = trial.size - 1 - trial.victim;
  const int here = reversed ? mirrored : trial.victim;
  const int there = reversed ? trial.victim : mirrored;
  const std::string name = format("rank %d (pid %d) died", here, static_cast<int>(crew.pid(trial.victim)));
  const Outcome& first = crew.outcome(rank, kFirst);
  const Outcome& next = crew.outcome(rank, kNext);
  const Outcome& other = crew.outcome(rank, kOther);
  if (first.result != DSC_ERR_PEER_DEAD || first.culprit != here || !first.revoked ||
      std::string(first.text).find(name) == std::string::npos)
    return "the first failing call, " + describe(rank, first) + ", expected " + name;
  if (next.result != DSC_ERR_REVOKED || next.culprit != here || next.code != DSC_ERR_PEER_DEAD)
    return "the next call, " + describe(rank, next);
  if (other.result != DSC_ERR_PEER_DEAD || other.culprit != there)
    return "the other communicator, " + describe(rank, other);
  if (crew.outcome(rank, kFinalize).result != DSC_OK)
    return "finalize, " + describe(rank, crew.outcome(rank, kFinalize));
  return "";
}

// Kills the victim and judges the survivors. `last_us`: how long the last one took.
std::string run_trial(const Trial& trial, int64_t& last_us) {
  Crew crew(trial.size, [&trial](Rank& rank) { return work_until_failure(rank, trial); });
  if (!crew.await_stage_of_all(1, 20'000 * slowdown())) return "the ranks did not start" + crew.describe();
  usleep(static_cast<useconds_t>(trial.delay_us));
  const int64_t killed_us = crew.signal(trial.victim, SIGKILL);
  const bool ended = crew.await_end_of_all(10'000 * slowdown());
  std::string problem = ended ? "" : "a rank hangs";
  for (int rank = 0; rank < trial.size && problem.empty(); ++rank) {
    if (rank == trial.victim) continue;
    problem = judge(crew, trial, rank);
    last_us = std::max(last_us, crew.outcome(rank, kFirst).end_us - killed_us);
  }
  if (problem.empty() && last_us > kMostUs * slowdown())
    problem = format("the last survivor took %lld us", (long long)last_us);
  if (const pid_t child = static_cast<pid_t>(crew.report(trial.victim).numbers[1]); child > 0) {
    if (problem.empty() && kill(child, 0) != 0) problem = "the child of the victim does not live";
    kill(child, SIGKILL);
  }
  return problem.empty() ? problem : problem + crew.describe();
}

void kill_ranks(int kills, bool live_child) {
  const uint64_t seed = static_cast<uint64_t>(setting("DSC_TEST_SEED", now_us() % 1'000'000'000));
  print_message("DSC_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  const Traces traces;
  std::vector<int64_t> times;
  for (int i = 0; i < kills; ++i) {
    const Trial trial = make_trial(seed + static_cast<uint64_t>(i), live_child);
    int64_t last_us = 0;
    const std::string problem = run_trial(trial, last_us);
    if (!problem.empty())
      fail_msg("seed %llu, %d ranks, rank %d killed after %d us: %s",
               static_cast<unsigned long long>(trial.seed), trial.size, trial.victim, trial.delay_us,
               problem.c_str());
    times.push_back(last_us);
  }
  const std::string left = traces.left();
  if (!left.empty()) fail_msg("left behind:%s", left.c_str());
  std::sort(times.begin(), times.end());
  print_message("%d kills, last survivor out: p50 %.2f ms, p99 %.2f ms, most %.2f ms\n", kills,
                static_cast<double>(times[times.size() / 2]) / 1e3,
                static_cast<double>(times[times.size() * 99 / 100]) / 1e3,
                static_cast<double>(times.back()) / 1e3);
}

int count_of(const char* variable, int count) {
  return static_cast<int>(setting(variable, slowdown() == 1 ? count : std::max(5, count / 10)));
}

void test_killed_rank_is_named(void**) { kill_ranks(count_of("DSC_TEST_KILLS", 200), false); }

void test_killed_rank_with_a_live_child_is_named(void**) {
  kill_ranks(count_of("DSC_TEST_KILLS_WITH_CHILD", 20), true);
}

void test_all_killed_at_once_leave_nothing(void**) {
  const Traces traces;
  const int rounds = count_of("DSC_TEST_KILLS_OF_ALL", 50);
  for (int round = 0; round < rounds; ++round) {
    const Trial trial{static_cast<uint64_t>(round), 4, 0, 0, false};
    Crew crew(trial.size, [&trial](Rank& rank) { return work_until_failure(rank, trial); });
    // Every other time before they are ready.
    if (round % 2 == 0) assert_true(crew.await_stage_of_all(1, 20'000 * slowdown()));
    usleep(static_cast<useconds_t>(round % 10 * 1000));
    crew.signal_all(SIGKILL);
    assert_true(crew.await_end_of_all(10'000 * slowdown()));
  }
  const std::string left = traces.left();
  if (!left.empty()) fail_msg("left behind:%s", left.c_str());
}

}  // namespace

int main() {
  if (!isolate()) print_message("no namespaces of our own: only traces with a libdsc name are looked for\n");
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_killed_rank_is_named, end_everything),
      cmocka_unit_test_teardown(test_killed_rank_with_a_live_child_is_named, end_everything),
      cmocka_unit_test_teardown(test_all_killed_at_once_leave_nothing, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
