// A rank that never arrives, leaves or gives up: the other ranks are told in time which one it was.
#include <setjmp.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>

#include "crew.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kSize = 3;
constexpr int kAbsent = 2;        // the rank at fault
constexpr int kTimeoutMs = 4000;  // enough time for a slow rank
constexpr int kRoundingMs = 10;

enum Stage { kReady = 1, kBack = 2, kDone = 3 };

int patience_ms() { return kAtOnceMs * slowdown(); }

bool all_are_ready(const Rank& rank) { return rank.await_stage_of_all(kReady, patience_ms()); }

dsc_result_t barrier(dsc_comm_t* comm) { return dsc_barrier(comm, nullptr, nullptr); }

// Describes what is wrong with the failure that a rank got. Empty if nothing is wrong.
std::string judge(const Crew& crew, int rank, size_t index, dsc_result_t result, dsc_result_t cause) {
  const Outcome& outcome = crew.outcome(rank, index);
  const std::string name = format("rank %d (pid %d)", kAbsent, static_cast<int>(crew.pid(kAbsent)));
  if (outcome.made && outcome.result == result && outcome.code == cause && outcome.culprit == kAbsent &&
      outcome.revoked && std::string(outcome.text).find(name) != std::string::npos)
    return "";
  return format("expected %s because of %s of %s; ", dsc_result_name(result), dsc_result_name(cause),
                name.c_str()) +
         describe(rank, outcome) + crew.describe();
}

// All ranks except one meet in a barrier. It fails with `result`, and the next one with DSC_ERR_REVOKED.
void expect_failure(const std::function<int(Rank&)>& absent,
                    const std::function<void(dsc_init_options_t&)>& change, dsc_result_t result,
                    int64_t least_ms, int64_t most_ms) {
  int64_t slowest_us = 0;
  std::string problem;
  {
    Crew crew(kSize, [&](Rank& rank) {
      dsc_init_options_t options = rank.options();
      change(options);
      if (!rank.join(options)) return 2;
      rank.reach(kReady);
      if (rank.rank == kAbsent) return absent(rank);
      rank.report.numbers[0] = now_us();
      rank.record(0, barrier(rank.world), rank.world);
      rank.record(1, barrier(rank.world), rank.world);
      rank.reach(kBack);
      rank.await_order(1, 20'000);
      return 0;
    });
    if (!crew.await_stage_of_all(kReady, 20'000 * slowdown())) problem = "no start" + crew.describe();
    for (int rank = 0; rank < kAbsent && problem.empty(); ++rank) {
      if (!crew.await_stage(rank, kBack, static_cast<int>(most_ms) + patience_ms()))
        problem = "hangs" + crew.describe();
      if (problem.empty()) problem = judge(crew, rank, 0, result, result);
      if (problem.empty()) problem = judge(crew, rank, 1, DSC_ERR_REVOKED, result);
      slowest_us = std::max(slowest_us, crew.outcome(rank, 0).end_us - crew.report(rank).numbers[0]);
      // The rank that began first gives up and ends the call for all.
      const int64_t first_us = std::min(crew.report(0).numbers[0], crew.report(1).numbers[0]);
      const int64_t waited_ms = (crew.outcome(rank, 0).end_us - first_us) / 1000;
      if (problem.empty() && waited_ms < least_ms - kRoundingMs)
        problem = format("rank %d waited %lld ms only", rank, (long long)waited_ms);
    }
    crew.order(1);
    if (problem.empty() && !crew.await_end_of_all(patience_ms())) problem = "no end" + crew.describe();
    for (int rank = 0; rank < kSize && problem.empty(); ++rank)
      if (crew.status(rank) != 0) problem = crew.describe();
  }
  if (problem.empty() && slowest_us > most_ms * 1000 * slowdown())
    problem = format("took %lld us", (long long)slowest_us);
  if (!problem.empty()) fail_msg("%s", problem.c_str());
}

void no_change(dsc_init_options_t&) {}

// The absent rank arrives after the other ranks have failed, and gets the same failure.
int come_too_late(Rank& rank) {
  if (!rank.await_order(1, 20'000)) return 4;
  const dsc_result_t late = barrier(rank.world);
  if (late == DSC_ERR_TIMEOUT || late == DSC_ERR_REVOKED) return 0;
  rank.note("late: %s", dsc_result_name(late));
  return 5;
}

void test_rank_that_does_not_come_is_a_timeout(void**) {
  expect_failure(
      come_too_late, [](dsc_init_options_t& options) { options.timeout_ms = kTimeoutMs; }, DSC_ERR_TIMEOUT,
      kTimeoutMs, kTimeoutMs + kAtOnceMs);
}

void test_rank_that_exits_in_order_has_left(void**) {
  const auto leave = [](Rank& rank) {
    if (!all_are_ready(rank)) return 6;
    sleep_ms(50);
    return kExitInOrder;
  };
  expect_failure(leave, no_change, DSC_ERR_PEER_LEFT, 0, kAtOnceMs);
}

void test_rank_that_destroys_has_left(void**) {
  const auto leave = [](Rank& rank) {
    if (!all_are_ready(rank)) return 6;
    sleep_ms(50);
    if (dsc_comm_destroy(rank.world) != DSC_OK) return 4;
    return rank.await_order(1, 20'000) ? 0 : 5;  // keeps running until the test orders the end
  };
  expect_failure(leave, no_change, DSC_ERR_PEER_LEFT, 0, kAtOnceMs);
}

void test_rank_that_aborts_revokes(void**) {
  const auto abort = [](Rank& rank) {
    if (!all_are_ready(rank)) return 6;
    sleep_ms(50);
    if (dsc_comm_abort(rank.world) != DSC_OK || barrier(rank.world) != DSC_ERR_REVOKED) return 4;
    return rank.await_order(1, 20'000) ? 0 : 5;
  };
  expect_failure(abort, no_change, DSC_ERR_REVOKED, 0, kAtOnceMs);
}

// The call of the blocked thread must return, too.
void test_abort_from_another_thread(void**) {
  std::string problem;
  {
    Crew crew(kSize, [](Rank& rank) {
      if (!rank.join(rank.options())) return 2;
      rank.reach(kReady);
      if (rank.rank == 0) return rank.await_order(1, 20'000) ? 0 : 4;  // never calls init
      std::thread aborter([&rank] {
        if (rank.rank != kAbsent || !all_are_ready(rank)) return;
        sleep_ms(50);
        rank.report.numbers[0] = now_us();
        rank.report.numbers[1] = dsc_comm_abort(rank.world);
      });
      rank.record(0, barrier(rank.world), rank.world);
      aborter.join();
      rank.reach(kBack);
      return 0;
    });
    for (const int rank : {1, 2}) {
      if (!crew.await_stage(rank, kBack, 20'000 * slowdown())) problem = "hangs" + crew.describe();
      if (problem.empty()) problem = judge(crew, rank, 0, DSC_ERR_REVOKED, DSC_ERR_REVOKED);
    }
    const int64_t aborted_us = crew.report(kAbsent).numbers[0];
    for (const int rank : {1, 2})
      if (problem.empty() && crew.outcome(rank, 0).end_us - aborted_us > patience_ms() * int64_t{1000})
        problem = format("rank %d came back late", rank);
    if (problem.empty() && crew.report(kAbsent).numbers[1] != DSC_OK) problem = "abort failed";
  }
  if (!problem.empty()) fail_msg("%s", problem.c_str());
}

void test_wait_that_times_out_revokes_nothing(void**) {
  Crew crew(kSize, [](Rank& rank) {
    if (!rank.join(rank.options())) return 2;
    rank.reach(kReady);
    if (rank.rank == kAbsent && !rank.await_order(1, 20'000)) return 3;
    float value = static_cast<float>(rank.rank + 1);
    dsc_work_t* work = nullptr;
    dsc_result_t result =
        dsc_all_reduce(rank.world, &value, &value, 1, DSC_DTYPE_F32, DSC_OP_SUM, nullptr, &work);
    if (result != DSC_OK) return 4;
    if (rank.rank != kAbsent) rank.record(0, dsc_work_wait(work, 100, nullptr), rank.world);
    rank.reach(kBack);
    rank.record(1, dsc_work_wait(work, -1, nullptr), rank.world);
    rank.record(2, barrier(rank.world), rank.world);
    rank.report.numbers[0] = static_cast<int64_t>(value);
    return 0;
  });
  for (int rank = 0; rank < kAbsent; ++rank) assert_true(crew.await_stage(rank, kBack, 20'000 * slowdown()));
  crew.order(1);
  assert_true(crew.await_end_of_all(20'000 * slowdown()));
  for (int rank = 0; rank < kSize; ++rank) {
    assert_int_equal(crew.status(rank), 0);
    if (rank != kAbsent) assert_int_equal(crew.outcome(rank, 0).result, DSC_IN_PROGRESS);
    assert_int_equal(crew.outcome(rank, 0).revoked, 0);
    assert_int_equal(crew.outcome(rank, 1).result, DSC_OK);
    assert_int_equal(crew.outcome(rank, 2).result, DSC_OK);
    assert_int_equal(crew.report(rank).numbers[0], 6);
  }
}

void test_init_names_the_rank_that_does_not_come(void**) {
  Crew crew(kSize, [](Rank& rank) {
    if (rank.rank == kAbsent) return rank.await_order(1, 60'000) ? 0 : 4;
    dsc_init_options_t options = rank.options();
    options.init_timeout_ms = kTimeoutMs;
    rank.report.numbers[0] = now_us();
    rank.record(0, dsc_init_distributed(&options, &rank.world), nullptr);
    rank.reach(kBack);
    return rank.world ? 5 : 0;
  });
  for (int rank = 0; rank < kAbsent; ++rank) assert_true(crew.await_stage(rank, kBack, 20'000 * slowdown()));
  // The rank that began first gives up and ends the call for all.
  const int64_t first_us = std::min(crew.report(0).numbers[0], crew.report(1).numbers[0]);
  for (int rank = 0; rank < kAbsent; ++rank) {
    const Outcome& outcome = crew.outcome(rank, 0);
    const int64_t all_waited_ms = (outcome.end_us - first_us) / 1000;
    const int64_t waited_ms = (outcome.end_us - crew.report(rank).numbers[0]) / 1000;
    assert_int_equal(outcome.result, DSC_ERR_TIMEOUT);
    if (!std::strstr(outcome.text, "2")) fail_msg("the rank is not named: %s", outcome.text);
    if (all_waited_ms < kTimeoutMs - kRoundingMs || waited_ms > kTimeoutMs + patience_ms())
      fail_msg("took %lld ms, %lld since the first began", (long long)waited_ms, (long long)all_waited_ms);
    print_message("%s\n", outcome.text);
  }
  crew.order(1);
  assert_true(crew.await_end_of_all(patience_ms()));
}

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_rank_that_does_not_come_is_a_timeout, end_everything),
      cmocka_unit_test_teardown(test_rank_that_exits_in_order_has_left, end_everything),
      cmocka_unit_test_teardown(test_rank_that_destroys_has_left, end_everything),
      cmocka_unit_test_teardown(test_rank_that_aborts_revokes, end_everything),
      cmocka_unit_test_teardown(test_abort_from_another_thread, end_everything),
      cmocka_unit_test_teardown(test_wait_that_times_out_revokes_nothing, end_everything),
      cmocka_unit_test_teardown(test_init_names_the_rank_that_does_not_come, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
