// Many ranks on few processors, together with a program that uses all processor time. Every rank is late, but
// none may be accused of a stall.
#include <sched.h>
#include <setjmp.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "crew.hpp"
#include "pauses.hpp"
#include "random_work.hpp"
#include "repetitions.h"
#include "sweep.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
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

// Keeps this process and its future children on the first `processors` processors.
void keep_to(int processors) {
  cpu_set_t allowed;
  cpu_set_t chosen;
  CPU_ZERO(&chosen);
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&chosen) < processors; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &chosen);
  sched_setaffinity(0, sizeof chosen, &chosen);
}

Pauses* pauses = nullptr;

void on_log(void*, const dsc_log_record_t* record) {
  pauses->note_accusation(accused_by(record->message), now_us());
}

int work_until_ordered(Rank& rank) {
  dsc_log_set_callback(on_log, nullptr, DSC_LOG_LEVEL_WARN);
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
  std::thread watch([&] { pauses->watch(rank.rank, over); });
  const int status = work_until_ordered(rank);
  over = true;
  watch.join();
  return status;
}

void test_nobody_is_accused(void**) {
  const int seconds = test_repetitions(15, 5);
  keep_to(kProcessors);
  Crew hogs(
      kProcessors,
      [](Rank& rank) {
        while (!rank.ordered(kFinish)) rank.report.operations.fetch_add(1);
        return 0;
      },
      1);
  Pauses noted(kSize);
  pauses = &noted;
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
  for (int rank = 0; rank < kSize; ++rank)
    if (!ended || crew.status(rank) != 0) fail_msg("%s%s", crew.describe().c_str(), crew.stacks().c_str());
  print_message("%d s, %llu operations of %d ranks, the longest pause of one %.2f s%s\n", seconds,
                (unsigned long long)crew.report(0).operations.load(), kSize,
                static_cast<double>(noted.longest_us()) / 1e6, noted.any_accused() ? ", accused" : "");
  assert_true(crew.report(0).operations.load() > 0);
  const int accused = noted.accused_without_reason();
  if (accused >= 0) fail_msg("rank %d ran, and was accused", accused);
}

// Checks the rule by which the other test excuses an accusation.
void test_only_a_pause_of_the_accused_shortly_before_excuses(void**) {
  constexpr int64_t kSecond = 1'000'000;
  const auto accused = [](int rank, int64_t begin_us, int64_t end_us, int64_t at_us, int64_t since_us = 0) {
    Pauses noted(2);
    noted.note_pause(rank, begin_us, end_us);
    noted.note_accusation(1, at_us);
    return noted.accused_without_reason(since_us);
  };
  assert_int_equal(accused(1, 10 * kSecond, 12 * kSecond, 11 * kSecond), -1);
  assert_int_equal(accused(1, 10 * kSecond, 12 * kSecond, 16 * kSecond), -1);
  assert_int_equal(accused(0, 10 * kSecond, 12 * kSecond, 11 * kSecond), 1);
  assert_int_equal(accused(1, 10 * kSecond, 12 * kSecond, 18 * kSecond), 1);
  assert_int_equal(accused(1, 10 * kSecond, 12 * kSecond, 9 * kSecond), 1);
  assert_int_equal(accused(1, 10 * kSecond, 10 * kSecond + 400'000, 11 * kSecond), 1);
  assert_int_equal(accused(1, 10 * kSecond, 12 * kSecond, 12 * kSecond, 12 * kSecond - 100'000), 1);
  assert_int_equal(accused_by("rank 3 (pid 7) has not run for 1.2 s"), 3);
  assert_int_equal(accused_by("rank 3 (pid 7) died"), -1);
}

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_only_a_pause_of_the_accused_shortly_before_excuses),
      cmocka_unit_test_teardown(test_nobody_is_accused, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
