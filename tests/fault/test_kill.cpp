// A rank is killed at any moment. The other ranks are told immediately which rank died, and nothing is left
// behind.
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "crew.hpp"
#include "kernel_copies.hpp"
#include "random_work.hpp"
#include "sweep.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include "census.h"

#include <cmocka.h>
}

namespace {

using namespace fault;

enum Step : size_t { kFirst, kNext, kOther, kFinalize };
enum Number : size_t { kReversed, kChild, kKernelCopies, kSegments };  // indices of Report::numbers

constexpr const char* kAimed = "aimed at a large copy by the kernel";
constexpr const char* kInACopy = "killed in the middle of such a copy";

struct Trial {
  uint64_t seed;
  size_t most_bytes;
  int size;
  int victim;
  int delay_us;
  bool live_child;
  bool in_a_copy;  // after the delay, the victim is killed as soon as it is in a copy by the kernel
};

// Returns whether these settings let the kernel copy all data that is not small and not reduced.
bool kernel_copies(const char* tuning) { return tuning && std::strstr(tuning, "single_copy_min_bytes=0"); }

Trial make_trial(std::mt19937_64 random, bool live_child) {
  constexpr int kSizes[] = {2, 2, 3, 3, 4, 4, 4, 8};
  const auto pick = [&random](uint64_t choices) { return static_cast<int>(random() % choices); };
  Trial trial{random(), size_t{256} << 10, kSizes[pick(std::size(kSizes))], 0, pick(10'000), live_child,
              false};
  if (pick(4) == 0) trial.most_bytes = size_t{2} << 20;
  if (pick(20) == 0) trial.most_bytes = size_t{at_length() ? 64u : 16u} << 20;
  trial.victim = pick(static_cast<uint64_t>(trial.size));
  trial.in_a_copy = kernel_copies(std::getenv("DSC_TUNING")) && pick(4) != 0;
  if (trial.in_a_copy) trial.most_bytes = std::max(trial.most_bytes, size_t{4} << 20);
  return trial;
}

std::string describe(const Trial& trial) {
  return format("%d ranks, up to %zu bytes, rank %d killed after %d us: ", trial.size, trial.most_bytes,
                trial.victim, trial.delay_us);
}

int work_until_failure(Rank& rank, const Trial& trial) {
  count_kernel_copies(rank.report.kernel_copies);
  if (!rank.join(rank.options())) return 2;
  char tuning[1024];
  size_t needed = 0;
  if (dsc_comm_tuning(rank.world, tuning, sizeof tuning, &needed) != DSC_OK) return 2;
  rank.report.numbers[kKernelCopies] = kernel_copies(tuning);  // 0 where the kernel refuses
  RandomWork work(rank, trial.seed, trial.most_bytes);
  if (!work.prepare()) return 3;
  if (trial.live_child && rank.rank == trial.victim) {
    const pid_t child = fork();
    if (child == 0)
      for (;;) pause();
    rank.report.numbers[kChild] = child;
  }
  rank.reach(1);
  dsc_result_t result = DSC_OK;
  while (result == DSC_OK && work.wrong().empty()) {
    result = work.step();
    rank.report.operations.fetch_add(1);
  }
  rank.report.numbers[kReversed] = work.reversed();
  rank.report.outcomes[kFirst].begin_us = work.began_us();
  rank.record(kFirst, result, work.comm());
  rank.record(kNext, dsc_barrier(work.comm(), nullptr, nullptr), work.comm());
  rank.record(kOther, dsc_barrier(work.other(), nullptr, nullptr), work.other());
  rank.record(kFinalize, dsc_finalize(), nullptr);
  if (work.wrong().empty()) return 0;
  rank.note("%s", work.wrong().c_str());
  return 4;
}

// Describes what is wrong with the outcome of a survivor. Empty if nothing is wrong.
std::string judge(const Crew& crew, const Trial& trial, int rank) {
  if (crew.status(rank) != 0) return format("rank %d ended with status %d", rank, crew.status(rank));
  const bool reversed = crew.report(rank).numbers[kReversed] != 0;
  const int mirrored = trial.size - 1 - trial.victim;
  const int here = reversed ? mirrored : trial.victim;
  const int there = reversed ? trial.victim : mirrored;
  const std::string name = format("rank %d (pid %d) died", here, static_cast<int>(crew.pid(trial.victim)));
  const Outcome& first = crew.outcome(rank, kFirst);
  const Outcome& next = crew.outcome(rank, kNext);
  const Outcome& other = crew.outcome(rank, kOther);
  if (first.result != DSC_ERR_PEER_DEAD || first.culprit != here || !first.revoked ||
      std::string(first.text).find(name) == std::string::npos)
    return "the first failing call, " + fault::describe(rank, first) + ", expected " + name;
  if (next.result != DSC_ERR_REVOKED || next.culprit != here || next.code != DSC_ERR_PEER_DEAD)
    return "the next call, " + fault::describe(rank, next);
  if (other.result != DSC_ERR_PEER_DEAD || other.culprit != there)
    return "the other communicator, " + fault::describe(rank, other);
  if (crew.outcome(rank, kFinalize).result != DSC_OK)
    return "finalize, " + fault::describe(rank, crew.outcome(rank, kFinalize));
  return "";
}

// Measures how long the survivors' calls continued after the kill, and how long the kernel took to end the
// process.
std::string measure(const Crew& crew, const Trial& trial, int64_t killed_us, Sweep& sweep) {
  int64_t last_us = 0;
  for (int rank = 0; rank < trial.size; ++rank) {
    const Outcome& first = crew.outcome(rank, kFirst);
    if (rank != trial.victim) last_us = std::max(last_us, first.end_us - std::max(killed_us, first.begin_us));
  }
  sweep.add("last survivor out", last_us);
  sweep.add("the kernel's own end of the process", crew.ended_us(trial.victim) - killed_us);
  return last_us > kAtOnceUs * slowdown() ? format("the last survivor took %lld us", (long long)last_us) : "";
}

// Waits until the victim is in a large copy by the kernel. Returns false if none begins.
bool await_kernel_copy(const Report& victim) {
  constexpr int64_t kMomentUs = 50'000;
  for (const int64_t end = now_us() + kMomentUs; now_us() < end; usleep(20))
    if (victim.kernel_copies > 0) return true;
  return false;
}

// Kills the victim and checks the survivors.
std::string run_trial(const Trial& trial, Sweep& sweep) {
  Crew crew(trial.size, [&trial](Rank& rank) { return work_until_failure(rank, trial); });
  if (!crew.await_stage_of_all(1, 20'000 * slowdown())) return "the ranks did not start" + crew.describe();
  usleep(static_cast<useconds_t>(trial.delay_us));
  const bool aimed = trial.in_a_copy && crew.report(trial.victim).numbers[kKernelCopies] != 0;
  const bool seen = aimed && await_kernel_copy(crew.report(trial.victim));
  const int64_t killed_us = crew.signal(trial.victim, SIGKILL);
  crew.await_end(trial.victim, 30'000 * slowdown());
  if (aimed) {
    sweep.tally(kAimed, true);
    sweep.tally(kInACopy, seen && crew.report(trial.victim).kernel_copies > 0);
  }
  const bool ended = crew.await_end_of_all(30'000 * slowdown());
  std::string problem = ended ? "" : "a rank hangs" + crew.stacks();
  for (int rank = 0; rank < trial.size && problem.empty(); ++rank)
    if (rank != trial.victim) problem = judge(crew, trial, rank);
  if (problem.empty()) problem = measure(crew, trial, killed_us, sweep);
  if (const pid_t child = static_cast<pid_t>(crew.report(trial.victim).numbers[kChild]); child > 0) {
    if (problem.empty() && kill(child, 0) != 0) problem = "the child of the victim does not live";
    kill(child, SIGKILL);
  }
  return problem.empty() ? problem : problem + crew.describe();
}

void kill_ranks(Sweep& sweep, bool live_child) {
  const Traces traces;
  while (sweep.next()) {
    const Trial trial = make_trial(sweep.random(), live_child);
    const std::string problem = run_trial(trial, sweep);
    if (!problem.empty())
      fail_msg("%s%s%s", sweep.replay().c_str(), describe(trial).c_str(), problem.c_str());
  }
  const std::string left = traces.left();
  if (!left.empty()) fail_msg("left behind:%s", left.c_str());
  sweep.report();
  sweep.expect_median("last survivor out", kPromisedUs * slowdown());
  if (sweep.tallied(kAimed) >= 100) assert_true(sweep.tallied(kInACopy) > 0);
}

void test_killed_rank_is_named(void**) {
  Sweep sweep("kills", at_length() ? 1000 : 400, {.least = 20});
  kill_ranks(sweep, false);
}

void test_killed_rank_with_a_live_child_is_named(void**) {
  Sweep sweep("kills with a live child", 200, {.least = 5});
  kill_ranks(sweep, true);
}

int free_after_a_kill(Rank& rank) {
  void* memory = nullptr;
  if (!rank.join(rank.options())) return 2;
  if (dsc_mem_alloc(rank.world, size_t{1} << 20, DSC_MEMORY_KIND_HOST, &memory) != DSC_OK) return 3;
  rank.reach(1);
  dsc_result_t result = DSC_OK;
  while (result == DSC_OK) result = dsc_barrier(rank.world, nullptr, nullptr);
  rank.record(kFirst, result, rank.world);
  if (take_census().segments == 0 || dsc_mem_free(memory) != DSC_OK) return 4;
  for (const int64_t end = now_ms() + kAtOnceMs * slowdown(); take_census().segments > 0 && now_ms() < end;)
    sleep_ms(20);
  rank.report.numbers[kSegments] = take_census().segments;
  return dsc_finalize() == DSC_OK ? 0 : 5;
}

// A killed rank counts as one that has freed its memory.
void test_memory_of_a_killed_rank_is_unmapped(void**) {
  constexpr int kSize = 3;
  Sweep sweep("kills of a rank that holds memory", 9, {.least = 2});
  while (sweep.next()) {
    const int victim = sweep.trial() % kSize;
    Crew crew(kSize, free_after_a_kill);
    assert_true(crew.await_stage_of_all(1, 20'000 * slowdown()));
    crew.signal(victim, SIGKILL);
    const bool ended = crew.await_end_of_all(30'000 * slowdown());
    if (!ended) fail_msg("a rank hangs%s", crew.stacks().c_str());
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == victim) continue;
      const Outcome& first = crew.outcome(rank, kFirst);
      if (crew.status(rank) != 0 || first.result != DSC_ERR_PEER_DEAD)
        fail_msg("%s%s", fault::describe(rank, first).c_str(), crew.describe().c_str());
      assert_int_equal(crew.report(rank).numbers[kSegments], 0);
    }
  }
  sweep.report();
}

// In every second trial the ranks are killed before they are ready.
void test_all_killed_at_once_leave_nothing(void**) {
  const Traces traces;
  Sweep sweep("kills of all ranks at once", 150, {.least = 4});
  while (sweep.next()) {
    const Trial trial = make_trial(sweep.random(), false);
    Crew crew(trial.size, [&trial](Rank& rank) { return work_until_failure(rank, trial); });
    if (sweep.trial() % 2 == 0) assert_true(crew.await_stage_of_all(1, 20'000 * slowdown()));
    usleep(static_cast<useconds_t>(trial.delay_us));
    crew.signal_all(SIGKILL);
    if (!crew.await_end_of_all(30'000 * slowdown())) fail_msg("%sa rank hangs", sweep.replay().c_str());
  }
  const std::string left = traces.left();
  if (!left.empty()) fail_msg("left behind:%s", left.c_str());
  sweep.report();
}

}  // namespace

int main() {
  if (!isolate()) print_message("no namespaces of our own: only traces with a libdsc name are looked for\n");
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_killed_rank_is_named, end_everything),
      cmocka_unit_test_teardown(test_killed_rank_with_a_live_child_is_named, end_everything),
      cmocka_unit_test_teardown(test_memory_of_a_killed_rank_is_unmapped, end_everything),
      cmocka_unit_test_teardown(test_all_killed_at_once_leave_nothing, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
