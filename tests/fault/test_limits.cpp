// A system that refuses memory, descriptors and threads, and signals that interrupt every call.
#include <setjmp.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "crew.hpp"
#include "random_work.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

bool isolated = false;  // this process has private mounts

void expect_end(Crew& crew, int timeout_ms) {
  const bool ended = crew.await_end_of_all(timeout_ms * slowdown());
  for (int rank = 0; rank < crew.size(); ++rank)
    if (!ended || crew.status(rank) != 0 || crew.report(rank).note[0])
      fail_msg("%s", crew.describe().c_str());
}

void test_too_much_memory_is_refused(void**) {
  Crew crew(3, [](Rank& rank) {
    if (!rank.join(rank.options())) return 2;
    void* memory = &rank;
    rank.record(0, dsc_mem_alloc(rank.world, size_t{1} << 40, DSC_MEMORY_KIND_HOST, &memory), rank.world);
    rank.report.numbers[0] = memory == nullptr;
    // The communicator still works, and memory that fits can be allocated.
    if (dsc_mem_alloc(rank.world, 1 << 20, DSC_MEMORY_KIND_HOST, &memory) != DSC_OK) return 3;
    auto* values = static_cast<int32_t*>(memory);
    values[0] = values[(1 << 18) - 1] = rank.rank + 1;
    if (dsc_all_reduce(rank.world, values, values, 1 << 18, DSC_DTYPE_I32, DSC_OP_SUM, nullptr, nullptr) !=
        DSC_OK)
      return 4;
    return values[0] == 6 && values[1] == 0 && values[(1 << 18) - 1] == 6 && dsc_finalize() == DSC_OK ? 0 : 5;
  });
  expect_end(crew, 60'000);
  for (int rank = 0; rank < crew.size(); ++rank) {
    const Outcome& outcome = crew.outcome(rank, 0);
    assert_int_equal(outcome.result, DSC_ERR_NOSPACE);
    assert_int_equal(outcome.revoked, 0);
    assert_int_equal(crew.report(rank).numbers[0], 1);
    if (!std::strstr(outcome.text, "1099511627776")) fail_msg("the bytes are not named: %s", outcome.text);
  }
  print_message("%s\n", crew.outcome(0, 0).text);
}

void limit_descriptors(rlim_t most) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = most;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Returns the time-out of start-up. It is long enough for a slow partner of a rank that was not refused.
int start_ms() { return 3000 + 300 * slowdown(); }

dsc_init_options_t second_world(const Rank& rank, char (&job)[48]) {
  dsc_init_options_t options = rank.options();
  std::snprintf(job, sizeof job, "%s-second", options.job_id);
  options.job_id = job;
  return options;
}

int start_with_descriptors(Rank& rank, int most) {
  dsc_init_options_t options = rank.options();
  options.init_timeout_ms = 3 * start_ms();  // all pairs start at the same time
  close_range(3, ~0u, 0);                    // the descriptors inherited from the test for the other pairs
  limit_descriptors(static_cast<rlim_t>(most));
  rank.record(0, dsc_init_distributed(&options, &rank.world), nullptr);
  limit_descriptors(256);
  rank.reach(1);
  if (!rank.await_order(1, 60'000)) return 2;
  if (rank.world) dsc_comm_destroy(rank.world);
  char job[48];
  if (!rank.join(second_world(rank, job)) || dsc_barrier(rank.world, nullptr, nullptr) != DSC_OK) return 3;
  return dsc_finalize() == DSC_OK ? 0 : 4;
}

struct Tally {
  int refused = 0;
  int started = 0;
};

void judge_descriptors(Crew& crew, int most, Tally& tally) {
  if (!crew.await_stage_of_all(1, 30'000 * slowdown()))
    fail_msg("%d descriptors%s", most, crew.describe().c_str());
  crew.order(1);
  for (int rank = 0; rank < crew.size(); ++rank) {
    const Outcome& outcome = crew.outcome(rank, 0);
    tally.started += outcome.result == DSC_OK;
    tally.refused += outcome.result == DSC_ERR_SYSTEM;
    if (outcome.result == DSC_OK || outcome.result == DSC_ERR_SYSTEM) continue;
    // The partner of a refused rank gets TIMEOUT if that rank never arrived, or PEER_LEFT if that rank had
    // arrived and then gave up.
    if ((outcome.result != DSC_ERR_TIMEOUT && outcome.result != DSC_ERR_PEER_LEFT) ||
        crew.outcome(1 - rank, 0).result != DSC_ERR_SYSTEM)
      fail_msg("%d descriptors: %s; %s", most, describe(rank, outcome).c_str(),
               describe(1 - rank, crew.outcome(1 - rank, 0)).c_str());
  }
  if (!crew.await_end_of_all(60'000 * slowdown()))
    fail_msg("%d descriptors%s", most, crew.describe().c_str());
  for (int rank = 0; rank < crew.size(); ++rank)
    if (crew.status(rank) != 0) fail_msg("%d descriptors%s", most, crew.describe().c_str());
}

// With every limit, start-up works or reports why not. With more descriptors the same process can start. A
// rank whose partner was refused waits in vain; all pairs wait at the same time.
void test_few_descriptors(void**) {
#if defined(__SANITIZE_ADDRESS__)
  print_message("left out: the sanitizer itself needs descriptors to check an object's type\n");
  return;
#endif
  std::vector<std::pair<int, std::unique_ptr<Crew>>> crews;
  for (int most = 4; most < 40; most += slowdown() == 1 ? 2 : 12)
    crews.emplace_back(most, std::make_unique<Crew>(
                                 2, [most](Rank& rank) { return start_with_descriptors(rank, most); }, most));
  Tally tally;
  for (const auto& [most, crew] : crews) judge_descriptors(*crew, most, tally);
  print_message("%d ranks refused, %d started\n", tally.refused, tally.started);
  assert_true(tally.refused > 0 && tally.started > 0);
}

constexpr uid_t kLimitedUser = 54'321;  // a user of whom no other process runs

// The limit of threads does not apply to root.
bool become_limited(rlim_t most) {
  if (geteuid() == 0 && (setresgid(kLimitedUser, kLimitedUser, kLimitedUser) != 0 ||
                         setresuid(kLimitedUser, kLimitedUser, kLimitedUser) != 0))
    return false;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // setting the user has cleared it
  rlimit limit{};
  getrlimit(RLIMIT_NPROC, &limit);
  limit.rlim_cur = std::min(most, limit.rlim_max);
  return setrlimit(RLIMIT_NPROC, &limit) == 0;
}

dsc_result_t reduce_async(Rank& rank) {
  int32_t value = 1;
  dsc_work_t* work = nullptr;
  dsc_result_t result =
      dsc_all_reduce(rank.world, &value, &value, 1, DSC_DTYPE_I32, DSC_OP_SUM, nullptr, &work);
  if (result == DSC_OK) result = dsc_work_wait(work, -1, nullptr);
  dsc_work_destroy(work);
  return result == DSC_OK && value != rank.size ? DSC_ERR_INTERNAL : result;
}

// Starts up with at most this many threads of this user, then again in the same process without a limit.
int start_with_threads(Rank& rank, int most) {
  dsc_init_options_t options = rank.options();
  options.init_timeout_ms = start_ms();
  if (!become_limited(static_cast<rlim_t>(most))) return 2;
  rank.record(0, dsc_init_distributed(&options, &rank.world), nullptr);
  if (rank.world) rank.record(1, reduce_async(rank), rank.world);
  rank.reach(1);
  if (!rank.await_order(1, 60'000) || !become_limited(RLIM_INFINITY)) return 3;
  if (rank.world) dsc_comm_destroy(rank.world);
  char job[48];
  if (!rank.join(second_world(rank, job)) || reduce_async(rank) != DSC_OK) return 4;
  return dsc_finalize() == DSC_OK ? 0 : 5;
}

// No thread can be created: start-up reports that, or works if it does not need the thread.
void test_few_threads(void**) {
  int refused = 0;
  int started = 0;
  for (int most = 1; most <= 6; ++most) {
    Crew crew(2, [most](Rank& rank) { return start_with_threads(rank, most); });
    if (!crew.await_stage_of_all(1, 30'000 * slowdown()))
      fail_msg("%d threads: hangs%s%s", most, crew.describe().c_str(), crew.stacks().c_str());
    crew.order(1);
    for (int rank = 0; rank < crew.size(); ++rank) {
      const Outcome& outcome = crew.outcome(rank, 0);
      started += outcome.result == DSC_OK;
      refused += outcome.result == DSC_ERR_SYSTEM;
      const bool other_was_refused = crew.outcome(1 - rank, 0).result == DSC_ERR_SYSTEM;
      const bool proper =
          outcome.result == DSC_OK
              ? crew.outcome(rank, 1).result == DSC_OK
              : outcome.result == DSC_ERR_SYSTEM || (outcome.result == DSC_ERR_TIMEOUT && other_was_refused);
      if (!proper)
        fail_msg("%d threads: %s; then %s", most, describe(rank, outcome).c_str(),
                 describe(rank, crew.outcome(rank, 1)).c_str());
      if (outcome.result == DSC_ERR_SYSTEM && !std::strstr(outcome.text, std::strerror(EAGAIN)))
        fail_msg("no reason is given: %s", outcome.text);
    }
    expect_end(crew, 60'000);
  }
  print_message("%d ranks refused, %d started\n", refused, started);
  assert_true(refused > 0 && started > 0);
}

void write_file(const char* path, size_t number) {
  std::FILE* file = std::fopen(path, "w");
  assert_non_null(file);
  std::fprintf(file, "%zu\n", number);
  std::fclose(file);
}

// Simulates the control group of a container. The limit of the control group counts, even if the machine has
// more memory.
void test_limit_of_the_control_group(void**) {
  constexpr size_t kLimit = size_t{96} << 20;
  constexpr size_t kUsed = size_t{32} << 20;
  if (!isolated || mount("fault", "/sys/fs/cgroup", "tmpfs", 0, nullptr) != 0) {
    print_message("left out: needs a /sys/fs/cgroup of its own\n");
    return;
  }
  write_file("/sys/fs/cgroup/memory.max", kLimit);
  write_file("/sys/fs/cgroup/memory.current", kUsed);
  {
    Crew crew(2, [](Rank& rank) {
      if (!rank.join(rank.options())) return 2;
      void* memory = nullptr;
      rank.record(0, dsc_mem_alloc(rank.world, kLimit - kUsed, DSC_MEMORY_KIND_HOST, &memory), rank.world);
      if (memory || dsc_mem_alloc(rank.world, 1 << 20, DSC_MEMORY_KIND_HOST, &memory) != DSC_OK) return 3;
      return dsc_finalize() == DSC_OK ? 0 : 4;
    });
    expect_end(crew, 60'000);
    for (int rank = 0; rank < crew.size(); ++rank) {
      const Outcome& outcome = crew.outcome(rank, 0);
      if (outcome.result != DSC_ERR_NOSPACE ||
          !std::strstr(outcome.text, format("%zu are available", kLimit - kUsed).c_str()))
        fail_msg("%s", describe(rank, outcome).c_str());
      assert_int_equal(outcome.revoked, 0);
    }
  }
  assert_int_equal(umount("/sys/fs/cgroup"), 0);
}

std::atomic<int64_t> alarms{0};

void on_alarm(int) { alarms.fetch_add(1, std::memory_order_relaxed); }

void start_alarms() {
  struct sigaction action {};
  action.sa_handler = on_alarm;  // without SA_RESTART, so system calls of this process fail with EINTR
  sigaction(SIGALRM, &action, nullptr);
  const itimerval every_ms{{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every_ms, nullptr);
}

void test_storm_of_signals(void**) {
  const int operations = slowdown() == 1 ? 3000 : 100;
  Crew crew(3, [operations](Rank& rank) {
    start_alarms();
    if (!rank.join(rank.options())) return 2;
    RandomWork work(rank, 11, size_t{2} << 20);
    if (!work.prepare()) return 3;
    dsc_result_t result = DSC_OK;
    for (int i = 0; i < operations && result == DSC_OK && work.wrong().empty(); ++i) result = work.step();
    if (result != DSC_OK) rank.note("%s: %s", dsc_result_name(result), dsc_last_error_message());
    if (!work.wrong().empty()) rank.note("%s", work.wrong().c_str());
    result = dsc_finalize();
    rank.report.numbers[0] = alarms.load();
    return result == DSC_OK ? 0 : 4;
  });
  expect_end(crew, 60'000);
  for (int rank = 0; rank < crew.size(); ++rank) {
    print_message("rank %d: %lld signals\n", rank, (long long)crew.report(rank).numbers[0]);
    assert_true(crew.report(rank).numbers[0] > 20);
  }
}

}  // namespace

int main() {
  isolated = isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_too_much_memory_is_refused, end_everything),
      cmocka_unit_test_teardown(test_few_descriptors, end_everything),
      cmocka_unit_test_teardown(test_few_threads, end_everything),
      cmocka_unit_test_teardown(test_limit_of_the_control_group, end_everything),
      cmocka_unit_test_teardown(test_storm_of_signals, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
