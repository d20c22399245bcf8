// A rank without any memory: failures are told and heard all the same, by their codes and the ranks at fault.
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include "crew.hpp"
#include "refuse.h"
#include "traces.hpp"

// Last, since it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kTimeoutMs = 300;
constexpr int kSoonMs = 2000;
constexpr int kPatienceMs = 20'000;

enum Stage { kDone = 1 };
enum Order { kGo = 1 };

void refuse_memory() { refuse_calls(0, 1, INT64_MAX); }

int32_t fail_without_memory(const void*, void*, size_t, dsc_dtype_t, void*) {
  refuse_memory();
  return 3;
}

// What rank 0 does without memory, and rank 1 with it. Each gives what it waited for.
dsc_result_t function_fails(Rank& rank) {
  static float data[4000];
  dsc_op_t op = 0;
  dsc_op_create_user(fail_without_memory, nullptr, 1, 1, &op);
  return dsc_all_reduce(rank.world, data, data, 4000, DSC_DTYPE_F32, op, nullptr, nullptr);
}

dsc_result_t nobody_comes(Rank& rank) {
  if (rank.rank == 1) return rank.await_order(kGo, kPatienceMs) ? DSC_ERR_TIMEOUT : DSC_OK;
  refuse_memory();
  return dsc_barrier(rank.world, nullptr, nullptr);
}

dsc_result_t peer_leaves(Rank& rank) {
  if (rank.rank == 1) {
    dsc_comm_t* world = rank.world;
    return dsc_comm_destroy(world) == DSC_OK && rank.await_order(kGo, kPatienceMs) ? DSC_ERR_PEER_LEFT
                                                                                   : DSC_OK;
  }
  refuse_memory();
  return dsc_barrier(rank.world, nullptr, nullptr);
}

dsc_result_t rank_aborts(Rank& rank) {
  if (rank.rank == 1) return dsc_barrier(rank.world, nullptr, nullptr);
  refuse_memory();
  return dsc_comm_abort(rank.world) == DSC_OK ? DSC_ERR_REVOKED : DSC_OK;
}

constexpr int32_t kAny = -2;

struct Scene {
  const char* name;
  dsc_result_t (*run)(Rank&);
  dsc_result_t expected;
  int32_t culprit;  // -1: not known without memory; kAny: whoever was first
  int timeout_ms;
};

constexpr Scene kScenes[] = {
    {"a function fails", function_fails, DSC_ERR_CALLBACK, kAny, kPatienceMs},
    {"nobody comes", nobody_comes, DSC_ERR_TIMEOUT, -1, kTimeoutMs},
    {"a peer leaves", peer_leaves, DSC_ERR_PEER_LEFT, 1, kPatienceMs},
    {"a rank aborts", rank_aborts, DSC_ERR_REVOKED, 0, kPatienceMs},
};

int act(Rank& rank, const Scene& scene) {
  if (!rank.join(rank.options())) return 2;
  dsc_barrier(rank.world, nullptr, nullptr);
  dsc_comm_set_timeout(rank.world, scene.timeout_ms);
  const dsc_result_t result = scene.run(rank);
  refuse_no_more();
  rank.record(0, result, rank.world);
  rank.reach(kDone);
  return rank.await_order(kGo, kPatienceMs) ? 0 : 3;
}

void play(const Scene& scene) {
  Crew crew(2, [&](Rank& rank) { return act(rank, scene); });
  if (!crew.await_stage(0, kDone, kTimeoutMs + kSoonMs + kSoonMs))
    fail_msg("%s: hangs or died%s%s", scene.name, crew.describe().c_str(), crew.stacks().c_str());
  crew.order(kGo);
  assert_true(crew.await_end_of_all(kPatienceMs));
  for (int rank = 0; rank < 2; ++rank) {
    const Outcome& outcome = crew.outcome(rank, 0);
    if (crew.status(rank) != 0 || outcome.result != scene.expected)
      fail_msg("%s: %s%s", scene.name, describe(rank, outcome).c_str(), crew.describe().c_str());
    if (rank == 0 && scene.culprit != kAny && outcome.culprit != scene.culprit)
      fail_msg("%s: %s", scene.name, describe(rank, outcome).c_str());
  }
}

void test_failures_need_no_memory(void**) {
  for (const Scene& scene : kScenes) play(scene);
}

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {cmocka_unit_test_teardown(test_failures_need_no_memory, end_everything)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
