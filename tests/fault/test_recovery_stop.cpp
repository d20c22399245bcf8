// A rank is stopped while it works or while it recovers. The other ranks continue without it. When it runs
// again it is told so, and it cannot change their memory.
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "crew.hpp"
#include "single_step.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kSize = 4;
constexpr int kStallTimeoutMs = 4000;
constexpr size_t kCount = size_t{1} << 20;  // elements of shared memory

enum Stage { kRunning = 1, kWithout = 2, kEnded = 3 };
enum Outcomes : size_t { kFirst, kAgree, kShrink, kLater, kFinalize };
enum Number : size_t { kSurvivors };

// Reduces shared memory and checks each sum, until the test orders the end.
dsc_result_t reduce_until(Rank& rank, dsc_comm_t* comm, uint32_t* data, uint32_t sum_of_ranks,
                          int32_t order) {
  int32_t size = 0;
  dsc_comm_size(comm, &size);
  for (uint32_t turn = 0;; ++turn) {
    for (size_t i = 0; i < kCount; ++i)
      data[i] = static_cast<uint32_t>(i) + turn + static_cast<uint32_t>(rank.rank);
    dsc_result_t result =
        dsc_all_reduce(comm, data, data, kCount, DSC_DTYPE_U32, DSC_OP_SUM, nullptr, nullptr);
    if (result != DSC_OK) return result;
    for (size_t i = 0; i < kCount; ++i)
      if (data[i] != (static_cast<uint32_t>(i) + turn) * static_cast<uint32_t>(size) + sum_of_ranks)
        return rank.note("turn %u: element %zu is wrong", turn, i), DSC_ERR_INTERNAL;
    rank.report.operations.fetch_add(1);
    int32_t end = rank.ordered(order);
    result = dsc_all_reduce(comm, &end, &end, 1, DSC_DTYPE_I32, DSC_OP_MIN, nullptr, nullptr);
    if (result != DSC_OK || end) return result;
  }
}

// Agrees and shrinks, and repeats this if another rank is lost in between. Returns NULL if the other ranks
// have continued without this one.
dsc_comm_t* recover(Rank& rank, dsc_comm_t* comm, int64_t stop_at) {
  int32_t agreed = 0;
  dsc_comm_t* shrunk = nullptr;
  if (stop_at > 0) arm(stop_at, SIGSTOP);
  const dsc_result_t agree = dsc_comm_agree(comm, 1, &agreed);
  if (stop_at > 0) disarm();
  rank.record(kAgree, agree, comm);
  const dsc_result_t shrink = dsc_comm_shrink(comm, nullptr, &shrunk);
  rank.record(kShrink, shrink, comm);
  return shrunk;
}

int live(Rank& rank, int victim, int64_t stop_at) {
  dsc_init_options_t options = rank.options();
  options.stall_timeout_ms = kStallTimeoutMs;
  void* memory = nullptr;
  if (!rank.join(options) ||
      dsc_mem_alloc(rank.world, kCount * sizeof(uint32_t), DSC_MEMORY_KIND_HOST, &memory) != DSC_OK)
    return 2;
  auto* data = static_cast<uint32_t*>(memory);
  rank.reach(kRunning);
  const dsc_result_t first = reduce_until(rank, rank.world, data, 6, 99);
  rank.record(kFirst, first, rank.world);
  dsc_comm_t* comm = recover(rank, rank.world, rank.rank == victim ? stop_at : 0);
  while (comm) {
    int32_t size = 0;
    dsc_comm_size(comm, &size);
    rank.report.numbers[kSurvivors] = size;
    uint32_t sum = 0;
    for (int32_t member = 0; member < size; ++member) {
      int32_t world_rank = 0;
      dsc_comm_global_rank(comm, member, &world_rank);
      sum += static_cast<uint32_t>(world_rank);
    }
    if (size < kSize) rank.reach(kWithout);
    const dsc_result_t result = reduce_until(rank, comm, data, sum, 1);
    rank.record(kLater, result, comm);
    if (result == DSC_OK) break;
    if (rank.report.note[0]) return 3;
    comm = recover(rank, comm, 0);
  }
  rank.record(kFinalize, dsc_finalize(), nullptr);
  rank.reach(kEnded);
  return rank.report.note[0] ? 4 : 0;
}

struct Trial {
  std::unique_ptr<Crew> crew;
  int victim;
  int dead;
};

// The test stops the victim during its work. Or, after another rank was killed, the victim stops itself at an
// instruction of agree.
Trial start(std::mt19937_64& random, int job) {
  const int victim = static_cast<int>(random() % kSize);
  const bool in_work = job % 2 == 0 || !can_single_step();
  const int64_t stop_at = in_work ? 0 : 1 + static_cast<int64_t>(random() % 800);
  Trial trial{std::make_unique<Crew>(
                  kSize, [victim, stop_at](Rank& rank) { return live(rank, victim, stop_at); }, job),
              victim, -1};
  if (!trial.crew->await_stage_of_all(kRunning, 20'000 * slowdown())) return trial;
  usleep(static_cast<useconds_t>(random() % 40'000));
  if (in_work) {
    trial.crew->signal(victim, SIGSTOP);
  } else {
    trial.dead = static_cast<int>((victim + 1) % kSize);
    trial.crew->signal(trial.dead, SIGKILL);  // this death makes the other ranks recover
  }
  return trial;
}

std::string judge(const Trial& trial) {
  Crew& crew = *trial.crew;
  const int survivors = trial.dead < 0 ? kSize - 1 : kSize - 2;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == trial.victim || rank == trial.dead) continue;
    if (!crew.await_stage(rank, kWithout, (kStallTimeoutMs + 20'000) * slowdown()))
      return "the others do not go on" + crew.stacks();
  }
  sleep_ms(300);  // the others work for a while without the victim
  // A victim that stops itself may be slow: the others have given it up before it reaches its stop.
  for (const int64_t end = now_ms() + 30'000 * slowdown(); now_ms() < end;) {
    crew.signal(trial.victim, SIGCONT);
    if (crew.await_stage(trial.victim, kEnded, 100)) break;
  }
  if (crew.report(trial.victim).stage.load() < kEnded)
    return format("the stopped rank %d hangs, %d was killed:", trial.victim, trial.dead) +
           describe(trial.victim, crew.outcome(trial.victim, kFirst)) + "; " +
           describe(trial.victim, crew.outcome(trial.victim, kAgree)) + "; " +
           describe(trial.victim, crew.outcome(trial.victim, kShrink)) + crew.describe();
  sleep_ms(200);  // and for a while with the victim running again
  crew.order(1);
  if (!crew.await_end_of_all(60'000 * slowdown())) return "a rank hangs" + crew.stacks();
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == trial.dead) continue;
    if (crew.status(rank) != 0) return format("rank %d ended with status %d", rank, crew.status(rank));
    if (crew.outcome(rank, kFinalize).result != DSC_OK)
      return "finalize: " + describe(rank, crew.outcome(rank, kFinalize));
    if (rank == trial.victim) continue;
    if (crew.outcome(rank, kLater).result != DSC_OK) return describe(rank, crew.outcome(rank, kLater));
    if (crew.report(rank).numbers[kSurvivors] != survivors)
      return format("rank %d is one of %lld, expected %d", rank,
                    (long long)crew.report(rank).numbers[kSurvivors], survivors);
  }
  const Outcome& shrink = crew.outcome(trial.victim, kShrink);
  if (shrink.result != DSC_ERR_PEER_STALLED ||
      std::string(shrink.text).find("have gone on without") == std::string::npos)
    return "the stopped rank's last shrink: " + describe(trial.victim, shrink);
  return "";
}

void test_stopped_rank_is_left_out(void**) {
  const uint64_t seed = static_cast<uint64_t>(setting("DSC_TEST_SEED", now_us() % 1'000'000'000));
  print_message("DSC_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  std::vector<Trial> trials;
  for (int job = 0; job < 4; ++job) trials.push_back(start(random, job));
  std::string problem;
  for (const Trial& trial : trials)
    if (problem.empty()) {
      problem = judge(trial);
      if (!problem.empty()) problem += trial.crew->describe();
    }
  trials.clear();
  if (!problem.empty()) fail_msg("%s", problem.c_str());
}

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {cmocka_unit_test_teardown(test_stopped_rank_is_left_out, end_everything)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
