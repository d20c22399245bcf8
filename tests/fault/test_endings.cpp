// Programs that close objects in the middle of operations, or never: no rank may hang, and the rest must
// still work. Also systems with little memory.
#include <setjmp.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "crew.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include "census.h"

#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kSize = 2;
constexpr int kWorks = 20;
constexpr int kPatienceMs = 20'000;

bool isolated = false;

enum Stage { kReady = 1, kBack = 2 };

void expect_end(Crew& crew) {
  const bool ended = crew.await_end_of_all(kPatienceMs * slowdown());
  for (int rank = 0; rank < crew.size(); ++rank)
    if (!ended || crew.status(rank) != 0 || crew.report(rank).note[0])
      fail_msg("%s%s", crew.describe().c_str(), crew.stacks().c_str());
}

// One thread destroys the communicator while another thread is blocked in a call on it.
int destroy_under_a_call(Rank& rank) {
  dsc_comm_t* group = nullptr;
  if (!rank.join(rank.options()) || dsc_comm_split(rank.world, 0, 0, nullptr, &group) != DSC_OK) return 2;
  if (rank.rank == 0) {
    std::thread blocked([&] { rank.record(0, dsc_barrier(group, nullptr, nullptr), nullptr); });
    sleep_ms(50);
    const int64_t start = now_ms();
    const dsc_result_t destroyed = dsc_comm_destroy(group);
    blocked.join();
    if (destroyed != DSC_OK) rank.note("destroy: %s", dsc_result_name(destroyed));
    if (now_ms() - start > kAtOnceMs * slowdown()) rank.note("took %lld ms", (long long)(now_ms() - start));
    if (rank.report.outcomes[0].result >= 0) rank.note("%s", describe(0, rank.report.outcomes[0]).c_str());
    rank.reach(kBack);
  }
  if (!rank.await_order(1, kPatienceMs)) return 3;
  if (rank.rank == 1 && dsc_barrier(group, nullptr, nullptr) >= 0)
    rank.note("the group works without its other rank");
  if (dsc_barrier(rank.world, nullptr, nullptr) != DSC_OK) return 4;
  return dsc_finalize() == DSC_OK ? 0 : 5;
}

void test_destroyed_under_a_call(void**) {
  Crew crew(kSize, destroy_under_a_call);
  if (!crew.await_stage(0, kBack, kPatienceMs))
    fail_msg("%s%s", crew.describe().c_str(), crew.stacks().c_str());
  crew.order(1);
  expect_end(crew);
}

// Each rank waits once for the other rank. This starts the thread that drives queued operations.
bool wait_in_turn(Rank& rank) {
  float value = 1;
  for (int first = 0; first < kSize; ++first) {
    dsc_work_t* work = nullptr;
    if (rank.rank != first) sleep_ms(50);
    if (dsc_all_reduce(rank.world, &value, &value, 1, DSC_DTYPE_F32, DSC_OP_MAX, nullptr, &work) != DSC_OK ||
        dsc_work_wait(work, -1, nullptr) != DSC_OK || dsc_work_destroy(work) != DSC_OK)
      return false;
  }
  return true;
}

// Works that are never waited for. Half of them are destroyed immediately, half after the world has ended.
bool leave_works(Rank& rank, int round) {
  static std::array<float, kWorks> values;
  std::array<dsc_work_t*, kWorks> works{};
  values.fill(static_cast<float>(rank.rank + 1));
  dsc_init_options_t options = rank.options();
  char job[48];
  std::snprintf(job, sizeof job, "%s-%d", options.job_id, round);
  options.job_id = job;
  if (!rank.join(options) || (round == 0 && !wait_in_turn(rank))) return false;
  for (size_t i = 0; i < kWorks; ++i) {
    const dsc_result_t started =
        dsc_all_reduce(rank.world, &values[i], &values[i], 1, DSC_DTYPE_F32, DSC_OP_SUM, nullptr, &works[i]);
    if (started != DSC_OK || (i % 2 == 0 && dsc_work_destroy(works[i]) != DSC_OK)) return false;
  }
  if (dsc_finalize() != DSC_OK) return false;
  for (size_t i = 0; i < kWorks; ++i) {
    const dsc_result_t expected = i % 2 == 0 ? DSC_ERR_BAD_HANDLE : DSC_OK;
    if (dsc_work_wait(works[i], 0, nullptr) != expected)
      rank.note("wait %zu: %s", i, dsc_last_error_message());
    if (dsc_work_destroy(works[i]) != expected) rank.note("destroy %zu: %s", i, dsc_last_error_message());
    if (values[i] != 3) rank.note("work %zu gave %g", i, static_cast<double>(values[i]));
  }
  return true;
}

void test_works_that_nobody_waits_for(void**) {
  Crew crew(kSize, [](Rank& rank) {
    if (!leave_works(rank, 0)) return 2;
    sleep_ms(50);
    const census_t before = take_census();
    for (int round = 1; round < 4; ++round)
      if (!leave_works(rank, round)) return 3;
    census_t after = take_census();
    const auto is_more = [&] {
      return after.descriptors > before.descriptors || after.threads > before.threads;
    };
    for (const int64_t end = now_ms() + kAtOnceMs; is_more() && now_ms() < end; after = take_census())
      sleep_ms(5);  // gives another thread time to release its resources
    if (is_more())
      rank.note("%d descriptors and %d threads, before %d and %d", after.descriptors, after.threads,
                before.descriptors, before.threads);
    return 0;
  });
  expect_end(crew);
}

dsc_comm_t* comm_at_exit = nullptr;

// Runs at the very end of exit(), because it was registered before the library's first call.
void ask_at_exit() {
  int32_t rank = -1;
  if (dsc_comm_rank(comm_at_exit, &rank) != DSC_OK || rank != 0) _exit(9);
}

// Calls exit() while one thread is blocked and other operations are queued.
int exit_in_the_middle(Rank& rank) {
  if (rank.rank == 0) std::atexit(ask_at_exit);
  if (!rank.join(rank.options())) return 2;
  comm_at_exit = rank.world;
  dsc_comm_t* group = nullptr;
  if (dsc_comm_split(rank.world, 0, 0, nullptr, &group) != DSC_OK) return 3;
  rank.reach(kReady);
  if (rank.rank == 0) {
    static std::array<float, kWorks> values;
    for (float& value : values) {
      dsc_work_t* work = nullptr;
      if (dsc_all_reduce(rank.world, &value, &value, 1, DSC_DTYPE_F32, DSC_OP_SUM, nullptr, &work) != DSC_OK)
        return 4;
    }
    std::thread([group] { dsc_barrier(group, nullptr, nullptr); }).detach();
    sleep_ms(50);
    return kExitInOrder;
  }
  if (!rank.await_order(1, kPatienceMs)) return 5;
  dsc_result_t result = dsc_barrier(group, nullptr, nullptr);  // the other rank has entered this barrier
  if (result == DSC_OK) result = dsc_barrier(group, nullptr, nullptr);
  rank.record(0, result, group);
  const Outcome& outcome = rank.report.outcomes[0];
  if (outcome.result != DSC_ERR_PEER_LEFT && outcome.code != DSC_ERR_PEER_LEFT)
    rank.note("%s", describe(1, outcome).c_str());
  return 0;
}

void test_exit_in_the_middle(void**) {
  Crew crew(kSize, exit_in_the_middle);
  assert_true(crew.await_stage_of_all(kReady, kPatienceMs));
  if (!crew.await_end(0, kAtOnceMs * slowdown())) fail_msg("exit() hangs%s", crew.stacks().c_str());
  crew.order(1);
  expect_end(crew);
}

void limit_address_space(rlim_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = bytes;
  setrlimit(RLIMIT_AS, &limit);
}

rlim_t address_space() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

dsc_result_t use_memory(Rank& rank, const dsc_init_options_t& options) {
  rank.world = nullptr;
  void* memory = nullptr;
  dsc_result_t result = dsc_init_distributed(&options, &rank.world);
  if (result == DSC_OK) result = dsc_mem_alloc(rank.world, size_t{8} << 20, DSC_MEMORY_KIND_HOST, &memory);
  if (result == DSC_OK) result = dsc_barrier(rank.world, nullptr, nullptr);
  return result;
}

// With every limit of the address space, either a world and its memory can be created, or all ranks report
// why not. After the limit is removed, the same processes create a world.
void test_little_address_space(void**) {
  if (slowdown() > 1) {
    print_message("left out: sanitizers need address space themselves\n");
    return;
  }
  int refused = 0;
  int worked = 0;
  for (rlim_t room = 0; room <= rlim_t{40} << 20; room += rlim_t{5} << 19) {
    Crew crew(kSize, [room](Rank& rank) {
      dsc_init_options_t options = rank.options();
      options.init_timeout_ms = 300;
      limit_address_space(address_space() + room);
      rank.record(0, use_memory(rank, options), nullptr);
      limit_address_space(RLIM_INFINITY);
      if (rank.world && rank.report.outcomes[0].result != DSC_OK) dsc_comm_abort(rank.world);
      if (rank.world) dsc_finalize();
      rank.reach(kBack);
      if (!rank.await_order(1, kPatienceMs)) return 2;
      options.init_timeout_ms = kPatienceMs;
      char job[48];
      std::snprintf(job, sizeof job, "%s-again", options.job_id);
      options.job_id = job;
      return use_memory(rank, options) == DSC_OK && dsc_finalize() == DSC_OK ? 0 : 3;
    });
    if (!crew.await_stage_of_all(kBack, kPatienceMs))
      fail_msg("%s%s", crew.describe().c_str(), crew.stacks().c_str());
    for (int rank = 0; rank < kSize; ++rank) {
      const dsc_result_t result = crew.outcome(rank, 0).result;
      worked += result == DSC_OK;
      refused += result == DSC_ERR_NOMEM || result == DSC_ERR_NOSPACE || result == DSC_ERR_SYSTEM;
      if (result > 0 || result == DSC_ERR_INTERNAL)
        fail_msg("%s", describe(rank, crew.outcome(rank, 0)).c_str());
    }
    crew.order(1);
    expect_end(crew);
  }
  print_message("%d ranks refused, %d worked\n", refused, worked);
  assert_true(refused > 0 && worked > 0);
}

// A /dev/shm of 64 KiB must not limit libdsc. Its shared memory is from memfd_create(), which does not use
// /dev/shm.
void test_tiny_dev_shm(void**) {
  if (!isolated || mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") != 0) {
    print_message("left out: the system does not let this process mount\n");
    return;
  }
  Crew crew(kSize, [](Rank& rank) {
    return use_memory(rank, rank.options()) == DSC_OK && dsc_finalize() == DSC_OK ? 0 : 2;
  });
  expect_end(crew);
}

}  // namespace

int main() {
  isolated = isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_destroyed_under_a_call, end_everything),
      cmocka_unit_test_teardown(test_works_that_nobody_waits_for, end_everything),
      cmocka_unit_test_teardown(test_exit_in_the_middle, end_everything),
      cmocka_unit_test_teardown(test_little_address_space, end_everything),
      cmocka_unit_test_teardown(test_tiny_dev_shm, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
