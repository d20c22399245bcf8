// Many ranks on few processors, beside a program that takes all it can get: everybody is late, and nobody is
// accused.
#include <sched.h>
#include <setjmp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>

#include "crew.hpp"
#include "random_work.hpp"
#include "sweep.hpp"
#include "traces.hpp"

// Last, since it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kSize = 8;
constexpr int kProcessors = 2;
constexpr int kStepsAtOnce = 16;
constexpr size_t kMostBytes = size_t{256} << 10;

enum Order { kFinish = 1 };

// This process and its children to come stay on these processors.
void keep_to(int processors) {
  cpu_set_t allowed;
  cpu_set_t chosen;
  CPU_ZERO(&chosen);
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&chosen) < processors; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &chosen);
  sched_setaffinity(0, sizeof chosen, &chosen);
}

// Numbers: a bit for every rank that the log accuses, and for how long this one did not run.
enum Number : size_t { kAccused, kPauseUs };

constexpr int64_t kLongPauseUs = 500'000;  // half of what is reported

void on_log(void* context, int32_t, const char* message) {
  int accused = 0;
  const char* const words = std::strstr(message, "rank ");
  if (std::strstr(message, "has not run for") && words && std::sscanf(words, "rank %d", &accused) == 1)
    std::atomic_ref<int64_t>(static_cast<Rank*>(context)->report.numbers[kAccused])
        .fetch_or(int64_t{1} << accused);
}

// The machine may keep a rank from running for so long that it is accused with reason.
void measure_pauses(Rank& rank, const std::atomic<bool>& over) {
  for (int64_t last_us = now_us(); !over.load();) {
    sleep_ms(20);
    const int64_t now = now_us();
    rank.report.numbers[kPauseUs] = std::max(rank.report.numbers[kPauseUs], now - last_us);
    last_us = now;
  }
}

int work_until_ordered(Rank& rank) {
  dsc_log_set_callback(on_log, &rank, DSC_LOG_WARN);
  if (!rank.join(rank.options())) return 2;
  RandomWork work(rank, 3, kMostBytes);
  if (!work.prepare()) return 3;
  for (int32_t end = 0; !end;) {
    for (int i = 0; i < kStepsAtOnce; ++i) {
      const dsc_result_t result = work.step();
      if (result != DSC_OK) rank.note("%s: %s", dsc_result_name(result), dsc_last_error_message());
      if (!work.wrong().empty()) rank.note("%s", work.wrong().c_str());
      if (rank.report.note[0]) return 4;
      rank.report.operations.fetch_add(1);
    }
    end = rank.ordered(kFinish);
    if (dsc_all_reduce(rank.world, &end, &end, 1, DSC_DTYPE_I32, DSC_OP_MAX, nullptr, nullptr) != DSC_OK)
      return 5;
  }
  return dsc_finalize() == DSC_OK ? 0 : 6;
}

int work_watched(Rank& rank) {
  std::atomic<bool> over{false};
  std::thread watch([&] { measure_pauses(rank, over); });
  const int status = work_until_ordered(rank);
  over = true;
  watch.join();
  return status;
}

void test_nobody_is_accused(void**) {
  const int seconds = static_cast<int>(setting("DSC_TEST_SECONDS", by_length(15, 600)));
  keep_to(kProcessors);
  Crew hogs(
      kProcessors,
      [](Rank& rank) {
        while (!rank.ordered(kFinish)) rank.report.operations.fetch_add(1);
        return 0;
      },
      1);
  Crew crew(kSize, work_watched);
  for (int second = 0; second < seconds; ++second) {
    sleep_ms(1000);
    if (at_length() && second % 10 == 9)
      print_message("%d of %d s, %llu operations\n", second + 1, seconds,
                    (unsigned long long)crew.report(0).operations.load());
    for (int rank = 0; rank < kSize; ++rank)
      if (crew.report(rank).note[0]) second = seconds;
  }
  crew.order(kFinish);
  const bool ended = crew.await_end_of_all(60'000 * slowdown());
  hogs.order(kFinish);
  int64_t accused = 0, longest_us = 0;
  for (int rank = 0; rank < kSize; ++rank) {
    if (!ended || crew.status(rank) != 0) fail_msg("%s%s", crew.describe().c_str(), crew.stacks().c_str());
    accused |= crew.report(rank).numbers[kAccused];
    longest_us = std::max(longest_us, crew.report(rank).numbers[kPauseUs]);
  }
  print_message("%d s, %llu operations of %d ranks, the longest pause of one %.2f s, accused: %llx\n",
                seconds, (unsigned long long)crew.report(0).operations.load(), kSize,
                static_cast<double>(longest_us) / 1e6, (unsigned long long)accused);
  assert_true(crew.report(0).operations.load() > 0);
  for (int rank = 0; rank < kSize; ++rank)
    if ((accused >> rank & 1) != 0 && crew.report(rank).numbers[kPauseUs] < kLongPauseUs)
      fail_msg("rank %d ran all the time, and was accused", rank);
}

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_nobody_is_accused, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
