// A process that creates and ends worlds again and again must not hold more resources at the end than at the
// beginning.
#include <malloc.h>
#include <setjmp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "crew.hpp"
#include "random_work.hpp"
#include "repetitions.h"
#include "sweep.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include "census.h"

#include <cmocka.h>
}

namespace {

using namespace fault;

// After this many worlds all tables have reached their final size. The number of a handle is reused only
// after a thousand other handles were released, so the table of handles grows at first.
constexpr int kSettled = 500;
constexpr int64_t kMostGrowth = 1024;  // bytes of memory per world
constexpr size_t kMostBytes = size_t{64} << 10;

enum Number : size_t { kDescriptors, kThreads, kMaps, kResidentBytes, kNumbers };

void count(int64_t* numbers) {
  malloc_trim(0);  // memory that the allocator keeps for later is not counted
  const census_t census = take_census();
  int64_t total = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  numbers[kDescriptors] = census.descriptors;
  numbers[kThreads] = census.threads;
  numbers[kMaps] = census.maps;
  numbers[kResidentBytes] = resident * sysconf(_SC_PAGESIZE);
}

bool make_and_end_world(Rank& rank, int round) {
  if (!rank.join(rank.options())) return false;
  RandomWork work(rank, static_cast<uint64_t>(round), kMostBytes);
  if (!work.prepare()) return false;
  dsc_result_t result = DSC_OK;
  for (int i = 0; i < 3 && result == DSC_OK; ++i) result = work.step();
  work.release();
  if (result == DSC_OK) result = dsc_finalize();
  if (result != DSC_OK) rank.note("round %d: %s", round, dsc_last_error_message());
  if (!work.wrong().empty()) rank.note("round %d: %s", round, work.wrong().c_str());
  return rank.report.note[0] == 0;
}

// Compares what a rank holds at the end with what it held after the first worlds. Describes what has grown;
// empty if nothing has.
std::string judge(const Crew& crew, int rank, int rounds) {
  const int64_t* before = crew.report(rank).numbers;
  const int64_t* after = before + kNumbers;
  const int64_t growth = (after[kResidentBytes] - before[kResidentBytes]) / (rounds - kSettled);
  print_message(
      "rank %d of %d: %d worlds, %lld descriptors, %lld threads, %lld maps, memory grew by %lld bytes a "
      "world\n",
      rank, crew.size(), rounds, (long long)after[kDescriptors], (long long)after[kThreads],
      (long long)after[kMaps], (long long)growth);
  const char* const names[] = {"descriptors", "threads", "maps"};
  for (const Number number : {kDescriptors, kThreads, kMaps})
    if (after[number] > before[number])
      return format("rank %d: %s grew from %lld to %lld", rank, names[number], (long long)before[number],
                    (long long)after[number]);
  if (slowdown() == 1 && growth >= kMostGrowth)  // sanitizers keep freed memory
    return format("rank %d: memory grew by %lld bytes a world", rank, (long long)growth);
  return "";
}

int make_and_end_worlds(Rank& rank, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    if (!make_and_end_world(rank, round)) return 2;
    if (round + 1 == kSettled) count(rank.report.numbers);
  }
  const int64_t* const before = rank.report.numbers;
  int64_t* const after = rank.report.numbers + kNumbers;
  const auto is_more = [&] {
    return std::any_of(&after[kDescriptors], &after[kMaps + 1],
                       [&](const int64_t& number) { return number > before[&number - after]; });
  };
  const int64_t end = now_ms() + kAtOnceMs;
  do {  // gives another thread time to release its resources
    sleep_ms(50);
    count(after);
  } while (is_more() && now_ms() < end);
  return 0;
}

void expect_nothing_left(int size) {
  // Some pages are allocated at random times. Only many rounds show that they are not a leak.
  const int least = kSettled + (slowdown() == 1 ? 300 : 50);
  const int rounds = test_repetitions(slowdown() == 1 ? 1000 : least, least);
  const Traces traces;
  std::string problem;
  {
    Crew crew(size, [rounds](Rank& rank) { return make_and_end_worlds(rank, rounds); });
    const bool ended = crew.await_end_of_all((30'000 + rounds * 60) * slowdown());
    if (!ended) problem = "a rank hangs" + crew.stacks();
    for (int rank = 0; rank < size && problem.empty(); ++rank)
      problem = crew.status(rank) == 0 ? judge(crew, rank, rounds) : crew.describe();
  }
  if (problem.empty()) problem = traces.left();
  if (!problem.empty()) fail_msg("%s", problem.c_str());
}

void test_worlds_of_one_rank_leave_nothing(void**) { expect_nothing_left(1); }

void test_worlds_of_two_ranks_leave_nothing(void**) { expect_nothing_left(2); }

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_worlds_of_one_rank_leave_nothing, end_everything),
      cmocka_unit_test_teardown(test_worlds_of_two_ranks_leave_nothing, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
