// A rank that has no memory left still reports its failures to others and receives theirs, with their codes
// and the ranks at fault.
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include "crew.hpp"
#include "refuse.h"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kTimeoutMs = 300;
constexpr int kPatienceMs = 20'000;

enum Stage { kDone = 1 };
enum Order { kGo = 1 };

void refuse_memory() { refuse_calls(0, 1, INT64_MAX); }

int32_t fail_without_memory(void*, const dsc_op_call_t*) {
  refuse_memory();
  return 3;
}

// Rank 0 runs these functions without memory, and rank 1 with memory. Each returns the result of the awaited
// operation.
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
  int32_t culprit;  // -1: not known without memory; kAny: the rank that failed first
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
  if (!crew.await_stage(0, kDone, kAtOnceMs))
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

enum LateOrder { kCome = 1, kRecover = 2, kComeAgain = 3, kEnd = 4 };

dsc_init_options_t options_of_two(const Rank& rank) {
  dsc_init_options_t options = rank.options();
  options.world_size = 2;
  options.rank = rank.rank % 2;
  return options;
}

int hold_the_name(Rank& rank) {
  if (!rank.join(options_of_two(rank))) return 2;
  dsc_barrier(rank.world, nullptr, nullptr);
  refuse_memory();
  rank.reach(kDone);
  if (!rank.await_order(kRecover, kPatienceMs)) return 3;
  refuse_no_more();
  rank.reach(kDone + 1);
  const bool works = dsc_barrier(rank.world, nullptr, nullptr) == DSC_OK;
  return rank.await_order(kEnd, kPatienceMs) && works && dsc_finalize() == DSC_OK ? 0 : 4;
}

int come_late(Rank& rank) {
  dsc_init_options_t options = options_of_two(rank);
  for (const size_t visit : {0, 1}) {
    options.init_timeout_ms = visit == 0 ? kTimeoutMs : kPatienceMs;  // the first attempt gets no answer
    if (!rank.await_order(visit == 0 ? kCome : kComeAgain, kPatienceMs)) return 2;
    rank.record(visit, dsc_init_distributed(&options, &rank.world), nullptr);
    rank.reach(kDone + static_cast<int32_t>(visit));
  }
  return 0;
}

// The rank that holds the world's name cannot answer while it has no memory. It is alive and answers later.
void test_a_late_comer_needs_no_memory(void**) {
  Crew crew(3, [](Rank& rank) { return rank.rank < 2 ? hold_the_name(rank) : come_late(rank); });
  assert_true(crew.await_stage(0, kDone, kPatienceMs) && crew.await_stage(1, kDone, kPatienceMs));
  crew.order(kCome);
  if (!crew.await_stage(2, kDone, kPatienceMs))
    fail_msg("hangs%s%s", crew.describe().c_str(), crew.stacks().c_str());
  crew.order(kRecover);
  for (int rank = 0; rank < 2; ++rank)
    if (!crew.await_stage(rank, kDone + 1, kPatienceMs)) fail_msg("ended%s", crew.describe().c_str());
  crew.order(kComeAgain);
  assert_true(crew.await_stage(2, kDone + 1, kPatienceMs));
  crew.order(kEnd);
  if (!crew.await_end_of_all(kPatienceMs)) fail_msg("hangs%s", crew.describe().c_str());
  for (int rank = 0; rank < crew.size(); ++rank)
    if (crew.status(rank) != 0) fail_msg("%s", crew.describe().c_str());
  assert_true(crew.outcome(2, 0).result < 0);
  if (crew.outcome(2, 1).result != DSC_ERR_ADDR_IN_USE)
    fail_msg("%s", describe(2, crew.outcome(2, 1)).c_str());
}

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_failures_need_no_memory, end_everything),
      cmocka_unit_test_teardown(test_a_late_comer_needs_no_memory, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
