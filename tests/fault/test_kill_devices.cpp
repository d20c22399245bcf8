// A rank is killed at any moment of operations on devices. The other ranks are told which rank died, their
// streams become idle, and they continue without it.
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "crew.hpp"
#include "sweep.hpp"

extern "C" {
#include "gpu.h"
}

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr size_t kMostCount = 16 << 10;  // elements of each rank
constexpr dsc_dtype_t kType = DSC_DTYPE_F32;
constexpr dsc_op_t kSum = DSC_OP_SUM;

enum Step : size_t { kFirst, kNext, kShrink, kRest, kFinalize };

struct Trial {
  uint64_t seed;
  int size;
  int victim;
  int delay_us;
};

Trial make_trial(std::mt19937_64 random) {
  constexpr int kSizes[] = {2, 3, 3, 4};
  const auto pick = [&random](uint64_t choices) { return static_cast<int>(random() % choices); };
  Trial trial{random(), kSizes[pick(std::size(kSizes))], 0, pick(20'000)};
  trial.victim = pick(static_cast<uint64_t>(trial.size));
  return trial;
}

// Random operations, the same on all ranks, on memory of this rank's device.
class DeviceWork {
 public:
  DeviceWork(const Rank& rank, uint64_t seed) : rank_(rank), random_(seed) {}
  bool prepare();
  dsc_result_t step();
  // Sums ones, so the result is the number of ranks. Returns an error code if an operation fails.
  dsc_result_t check_sum(dsc_comm_t* comm, float* came);
  int64_t began_us() const { return began_us_; }

 private:
  int pick(uint64_t choices) { return static_cast<int>(random_() % choices); }
  dsc_result_t start(size_t count, dsc_work_t** work);
  dsc_result_t exchange(size_t count, dsc_work_t** work);

  const Rank& rank_;
  std::mt19937_64 random_;
  void* send_ = nullptr;
  void* recv_ = nullptr;
  int64_t began_us_ = 0;
};

bool DeviceWork::prepare() {
  const size_t bytes = kMostCount * sizeof(float) * static_cast<size_t>(rank_.size);
  send_ = gpu_alloc(bytes);
  recv_ = gpu_alloc(bytes);
  return send_ && recv_;
}

// Sends to the next rank and receives from the previous one.
dsc_result_t DeviceWork::exchange(size_t count, dsc_work_t** work) {
  const int next = (rank_.rank + 1) % rank_.size, before = (rank_.rank + rank_.size - 1) % rank_.size;
  dsc_result_t result = dsc_batch_begin(rank_.world);
  if (result != DSC_OK) return result;
  result = dsc_send(rank_.world, send_, count, kType, next, nullptr, nullptr);
  if (result == DSC_OK) result = dsc_recv(rank_.world, recv_, count, kType, before, nullptr, nullptr);
  const dsc_result_t ended = dsc_batch_end(rank_.world, nullptr, work);
  return result == DSC_OK ? ended : result;
}

dsc_result_t DeviceWork::start(size_t count, dsc_work_t** work) {
  dsc_comm_t* const world = rank_.world;
  const int root = pick(static_cast<uint64_t>(rank_.size));
  switch (pick(7)) {
    case 0:
      return dsc_all_reduce(world, send_, recv_, count, kType, kSum, nullptr, work);
    case 1:
      return dsc_reduce_scatter(world, send_, recv_, count, kType, kSum, nullptr, work);
    case 2:
      return dsc_all_gather(world, send_, recv_, count, kType, nullptr, work);
    case 3:
      return dsc_broadcast(world, send_, recv_, count, kType, root, nullptr, work);
    case 4:
      return dsc_all_to_all(world, send_, recv_, count, kType, nullptr, work);
    case 5:
      return exchange(count, work);
    default:
      return dsc_barrier(world, nullptr, work);
  }
}

// Waits for the operation, or leaves it on its stream, where the next operations follow.
dsc_result_t DeviceWork::step() {
  const bool waits = pick(2) == 0;
  const size_t count = 1 + random_() % (pick(4) == 0 ? kMostCount : 100);
  dsc_work_t* work = nullptr;
  began_us_ = now_us();
  dsc_result_t result = start(count, waits ? &work : nullptr);
  if (result == DSC_OK && waits) result = dsc_work_synchronize(work, -1);
  dsc_work_destroy(work);
  return result;
}

dsc_result_t DeviceWork::check_sum(dsc_comm_t* comm, float* came) {
  const float one = 1;
  dsc_work_t* work = nullptr;
  gpu_upload(send_, &one, sizeof one);
  dsc_result_t result = dsc_all_reduce(comm, send_, recv_, 1, kType, kSum, nullptr, &work);
  if (result == DSC_OK) result = dsc_work_synchronize(work, -1);
  dsc_work_destroy(work);
  gpu_download(came, recv_, sizeof *came);
  return result;
}

dsc_init_options_t device_options(const Rank& rank) {
  dsc_init_options_t options = rank.options();
  options.backend = DSC_BACKEND_DEVICE;
  options.device = rank.rank;
  return options;
}

// Makes a communicator of the remaining ranks, checks a sum, and ends.
int go_on(Rank& rank, DeviceWork& work) {
  dsc_comm_t* rest = nullptr;
  int32_t size = 0;
  float came = 0;
  rank.record(kShrink, dsc_comm_shrink(rank.world, nullptr, &rest), nullptr);
  if (!rest) return 5;
  rank.record(kRest, work.check_sum(rest, &came), rest);
  if (dsc_comm_size(rest, &size) != DSC_OK || came != static_cast<float>(size)) {
    rank.note("the sum of the rest is %g, expected %d", static_cast<double>(came), size);
    return 6;
  }
  rank.record(kFinalize, dsc_finalize(), nullptr);
  return 0;
}

int work_until_failure(Rank& rank, const Trial& trial) {
  if (!gpu_bind(rank.rank)) {
    rank.note("%s", gpu_trouble());
    return 2;
  }
  if (!rank.join(device_options(rank))) return 2;
  DeviceWork work(rank, trial.seed);
  if (!work.prepare()) return 3;
  rank.reach(1);
  dsc_result_t result = DSC_OK;
  while (result == DSC_OK) {
    result = work.step();
    rank.report.operations.fetch_add(1);
  }
  rank.report.outcomes[kFirst].begin_us = work.began_us();
  rank.record(kFirst, result, rank.world);
  rank.record(kNext, dsc_barrier(rank.world, nullptr, nullptr), rank.world);
  if (!gpu_synchronize(nullptr)) return 4;
  return go_on(rank, work);
}

// Describes what is wrong with the outcome of a survivor. Empty if nothing is wrong.
std::string judge(const Crew& crew, const Trial& trial, int rank) {
  const std::string name =
      format("rank %d (pid %d) died", trial.victim, static_cast<int>(crew.pid(trial.victim)));
  const Outcome& first = crew.outcome(rank, kFirst);
  const Outcome& next = crew.outcome(rank, kNext);
  // The first operation that failed may be one that this rank never waited for, so its error was not seen.
  const auto told = [](const Outcome& outcome) {
    return outcome.result == DSC_ERR_PEER_DEAD ||
           (outcome.result == DSC_ERR_REVOKED && outcome.code == DSC_ERR_PEER_DEAD);
  };
  if (!told(first) || first.culprit != trial.victim || !first.revoked ||
      std::string(first.text).find(name) == std::string::npos)
    return "the first failing call, " + fault::describe(rank, first) + ", expected " + name;
  // If the first call that failed was on a device, `next` is the first failed call on the host.
  if (!told(next) || next.culprit != trial.victim || next.code != DSC_ERR_PEER_DEAD)
    return "the next call, " + fault::describe(rank, next);
  for (const Step step : {kShrink, kRest, kFinalize})
    if (const Outcome& later = crew.outcome(rank, step); !later.made || later.result != DSC_OK)
      return format("step %zu, ", static_cast<size_t>(step)) + fault::describe(rank, later);
  if (crew.status(rank) != 0) return format("rank %d ended with status %d", rank, crew.status(rank));
  return "";
}

// Measures how long the survivors' calls continued after the kill.
std::string measure(const Crew& crew, const Trial& trial, int64_t killed_us, Sweep& sweep) {
  int64_t last_us = 0;
  for (int rank = 0; rank < trial.size; ++rank) {
    const Outcome& first = crew.outcome(rank, kFirst);
    if (rank != trial.victim) last_us = std::max(last_us, first.end_us - std::max(killed_us, first.begin_us));
  }
  sweep.add("last survivor out", last_us);
  return last_us > kAtOnceUs * slowdown()
             ? format("the last survivor took %lld us", static_cast<long long>(last_us))
             : "";
}

std::string run_trial(const Trial& trial, Sweep& sweep) {
  Crew crew(trial.size, [&trial](Rank& rank) { return work_until_failure(rank, trial); });
  if (!crew.await_stage_of_all(1, 20'000 * slowdown())) return "the ranks did not start" + crew.describe();
  usleep(static_cast<useconds_t>(trial.delay_us));
  const int64_t killed_us = crew.signal(trial.victim, SIGKILL);
  crew.await_end(trial.victim, 30'000 * slowdown());
  const bool ended = crew.await_end_of_all(60'000 * slowdown());
  std::string problem = ended ? "" : "a rank hangs" + crew.stacks();
  for (int rank = 0; rank < trial.size && problem.empty(); ++rank)
    if (rank != trial.victim) problem = judge(crew, trial, rank);
  if (problem.empty()) problem = measure(crew, trial, killed_us, sweep);
  return problem.empty() ? problem : problem + crew.describe();
}

void test_killed_rank_is_named_and_left_behind(void**) {
  Sweep sweep("kills of ranks with devices", 40, {.least = 4});
  while (sweep.next()) {
    const Trial trial = make_trial(sweep.random());
    const std::string problem = run_trial(trial, sweep);
    if (!problem.empty())
      fail_msg("%s%d ranks, rank %d killed after %d us: %s", sweep.replay().c_str(), trial.size, trial.victim,
               trial.delay_us, problem.c_str());
  }
  sweep.report();
  sweep.expect_median("last survivor out", kPromisedUs * slowdown());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_killed_rank_is_named_and_left_behind, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
