// A rank crashes and writes a core dump. The kernel reports its death only when the dump is complete. Until
// then the rank counts as stalled; afterwards the survivors name it immediately.
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <vector>

#include "crew.hpp"
#include "sweep.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kSize = 3;
constexpr size_t kCount = 100'000;

// The folder of the dumps, if the system writes them to the program's working directory.
std::string folder;

size_t resident_bytes() { return size_t{at_length() ? 1024u : 96u} << 20; }

// Crashes between two operations while the other ranks wait in the next one.
int crash(Rank& rank, int signal, int delay_us) {
  const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_CORE, &all) != 0 || chdir(folder.c_str()) != 0) return 2;
  std::vector<char> resident(resident_bytes());
  for (size_t i = 0; i < resident.size(); i += 512) resident[i] = static_cast<char>(i >> 9);
  static float data[kCount];
  rank.reach(1);
  const int64_t end = now_us() + delay_us;
  do {  // at least one operation, or the other ranks might still be joining
    if (dsc_all_reduce(rank.world, data, data, kCount, DSC_DTYPE_F32, DSC_OP_SUM, nullptr, nullptr) != DSC_OK)
      return 3;
  } while (now_us() < end);
  rank.report.numbers[0] = now_us();
  ::raise(signal);
  return 4;
}

int survive(Rank& rank) {
  static float data[kCount];
  rank.reach(1);
  dsc_result_t result = DSC_OK;
  while (result == DSC_OK) {
    rank.report.outcomes[0].begin_us = now_us();
    result = dsc_all_reduce(rank.world, data, data, kCount, DSC_DTYPE_F32, DSC_OP_SUM, nullptr, nullptr);
  }
  rank.record(0, result, rank.world);
  return dsc_finalize() == DSC_OK ? 0 : 5;
}

struct Crash {
  int victim;
  int signal;
  int delay_us;
};

Crash make_crash(std::mt19937_64 random) {
  constexpr int kSignals[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE};
  return {static_cast<int>(random() % kSize), kSignals[random() % 4], static_cast<int>(random() % 20'000)};
}

// Removes the dumps and returns their size.
uintmax_t take_dumps() {
  uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    bytes += entry.file_size();
    std::filesystem::remove(entry);
  }
  return bytes;
}

std::string run_trial(const Crash& trial, Sweep& sweep) {
  Crew crew(kSize, [&](Rank& rank) {
    if (!rank.join(rank.options())) return 2;
    return rank.rank == trial.victim ? crash(rank, trial.signal, trial.delay_us) : survive(rank);
  });
  if (!crew.await_end(trial.victim, 120'000)) return "the crash did not end the rank" + crew.stacks();
  if (crew.status(trial.victim) != 128 + trial.signal) return "no crash" + crew.describe();
  if (!crew.await_end_of_all(30'000 * slowdown())) return "a rank hangs" + crew.stacks();
  int64_t last_us = 0;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == trial.victim) continue;
    const Outcome& outcome = crew.outcome(rank, 0);
    const std::string name = format("rank %d (pid %d) died", trial.victim, (int)crew.pid(trial.victim));
    if (crew.status(rank) != 0 || outcome.result != DSC_ERR_PEER_DEAD || outcome.culprit != trial.victim ||
        std::string(outcome.text).find(name) == std::string::npos)
      return describe(rank, outcome) + crew.describe();
    last_us = std::max(last_us, outcome.end_us - crew.ended_us(trial.victim));
  }
  sweep.add("from the crash to its report by the kernel",
            crew.ended_us(trial.victim) - crew.report(trial.victim).numbers[0]);
  sweep.add("last survivor out after that", last_us);
  return last_us > kAtOnceUs * slowdown() ? format("the last survivor took %lld us", (long long)last_us) : "";
}

void test_a_rank_that_dumps_core_is_named(void**) {
  Sweep sweep("crashes with a core dump", 3, {});
  uintmax_t dumped = 0;
  while (sweep.next()) {
    const Crash trial = make_crash(sweep.random());
    const std::string problem = run_trial(trial, sweep);
    dumped = std::max(dumped, take_dumps());
    if (!problem.empty())
      fail_msg("%srank %d, signal %d: %s", sweep.replay().c_str(), trial.victim, trial.signal,
               problem.c_str());
  }
  sweep.report();
  sweep.expect_median("last survivor out after that", kPromisedUs * slowdown());
  // If another program receives the dumps, or the machine writes none, it was a crash without a dump.
  print_message("the largest dump had %ju MiB\n", dumped >> 20);
}

}  // namespace

int main() {
  isolate();
  folder = std::filesystem::temp_directory_path() / "fault_core_XXXXXX";
  if (!mkdtemp(folder.data())) return 1;
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_a_rank_that_dumps_core_is_named, end_everything),
  };
  const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
  std::filesystem::remove_all(folder);
  return failed;
}
