// A system refuses one call. For every possible call the library reports it and no rank hangs. When the
// system accepts calls again, the same processes work as before.
#include <execinfo.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>

#include "crew.hpp"
#include "refuse.h"
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

constexpr int kSize = 2;
constexpr size_t kCount = 3000;    // elements of each buffer: small enough to be fast, and not a round number
constexpr int32_t kWrong = -1000;  // not an error code: the result of an operation was wrong
constexpr int kShortInitMs = 100;  // how long a rank waits at start-up for a partner that was refused
constexpr int kShortMs = 4000;     // the same for an operation; no operation should have to wait this long
constexpr int kPatienceMs = 20'000;

enum Order { kAgain = 1 };
enum Stage { kBack = 1 };
enum Number : size_t { kDescriptors, kMaps };

constexpr int kMostKinds = 64;
using Calls = std::array<int64_t, kMostKinds>;  // indexed by the kind of call

Calls* calls_made = nullptr;  // calls of the latest culprit; shared with the ranks

// All objects that one rank uses. None of them is allocated on the heap.
struct Everything {
  Rank* rank = nullptr;
  dsc_comm_t* group = nullptr;
  dsc_work_t* work = nullptr;
  dsc_bucket_reducer_t* reducer = nullptr;
  void* memory = nullptr;
  dsc_op_t scaled = 0;
  std::array<int32_t, kCount> in{};
  std::array<int32_t, kCount> out{};
  std::array<float, 16> gradient{};
  char text[256] = {};

  int other() const { return 1 - rank->rank; }
  dsc_tensor_t parameter() {
    dsc_tensor_t tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.data = gradient.data();
    tensor.count = gradient.size();
    tensor.dtype = DSC_DTYPE_F32;
    tensor.device = -1;
    return tensor;
  }
};

constexpr dsc_dtype_t kI32 = DSC_DTYPE_I32;
constexpr dsc_op_t kSum = DSC_OP_SUM;
constexpr size_t kHalf = kCount / kSize;

// Each input element depends on the rank and the index. `expected` returns an element of the output.
template <typename Start, typename Expected>
dsc_result_t operate(Everything& it, Start start, size_t count, Expected expected) {
  for (size_t i = 0; i < kCount; ++i) it.in[i] = static_cast<int32_t>(i) * 8 + it.rank->rank;
  it.out.fill(-1);
  const dsc_result_t result = start(it.in.data(), it.out.data());
  if (result != DSC_OK) return result;
  for (size_t i = 0; i < count; ++i)
    if (it.out[i] != expected(static_cast<int32_t>(i))) return kWrong;
  return DSC_OK;
}

constexpr int32_t of(int32_t rank, int32_t i) { return i * 8 + rank; }
constexpr int32_t summed(int32_t i) { return i * 16 + 1; }
constexpr auto kHalfCount = static_cast<int32_t>(kHalf);

dsc_result_t finish(Everything& it, dsc_result_t started) {
  if (started != DSC_OK) return started;
  const dsc_result_t result = dsc_work_wait(it.work, -1, nullptr);
  const dsc_result_t destroyed = dsc_work_destroy(it.work);
  it.work = nullptr;
  return result == DSC_OK ? destroyed : result;
}

dsc_result_t all_reduce(Everything& it, dsc_comm_t* comm, dsc_work_t** work) {
  return operate(
      it,
      [&](const int32_t* in, int32_t* out) {
        const dsc_result_t started = dsc_all_reduce(comm, in, out, kCount, kI32, kSum, nullptr, work);
        return work ? finish(it, started) : started;
      },
      kCount, summed);
}

dsc_result_t all_reduce_shared(Everything& it) {
  auto* values = static_cast<int32_t*>(it.memory);
  std::fill_n(values, kCount, it.rank->rank + 1);
  const dsc_result_t result =
      dsc_all_reduce(it.rank->world, values, values, kCount, kI32, kSum, nullptr, nullptr);
  if (result != DSC_OK) return result;
  return std::all_of(values, values + kCount, [](int32_t value) { return value == 3; }) ? DSC_OK : kWrong;
}

dsc_result_t all_reduce_watched(Everything& it) {
  return operate(
      it,
      [&](const int32_t* in, int32_t* out) {
        dsc_result_t result = dsc_all_reduce(it.rank->world, in, out, kCount, kI32, kSum, nullptr, &it.work);
        int32_t descriptor = -1;
        if (result == DSC_OK) result = dsc_work_eventfd(it.work, &descriptor);
        const dsc_result_t finished = it.work ? finish(it, DSC_OK) : DSC_OK;
        return result == DSC_OK ? finished : result;
      },
      kCount, summed);
}

// Sends to the other rank and receives from it at the same time, as two works or as one batch.
dsc_result_t exchange(Everything& it, bool grouped) {
  dsc_comm_t* world = it.rank->world;
  return operate(
      it,
      [&](const int32_t* in, int32_t* out) {
        dsc_result_t result = grouped ? dsc_batch_begin(world) : DSC_OK;
        if (result != DSC_OK) return result;
        result = dsc_send(world, in, kCount, kI32, it.other(), nullptr, grouped ? nullptr : &it.work);
        const dsc_result_t received =
            result == DSC_OK ? dsc_recv(world, out, kCount, kI32, it.other(), nullptr, nullptr) : result;
        if (grouped) {
          const dsc_result_t ended = dsc_batch_end(world, nullptr, nullptr);
          return received == DSC_OK ? ended : received;
        }
        const dsc_result_t sent = it.work ? finish(it, DSC_OK) : result;
        return received == DSC_OK ? sent : received;
      },
      kCount, [&](int32_t i) { return of(it.other(), i); });
}

dsc_result_t with_lengths(Everything& it, bool to_all) {
  const size_t counts[kSize] = {kHalf, kHalf};
  dsc_comm_t* world = it.rank->world;
  return operate(
      it,
      [&](const int32_t* in, int32_t* out) {
        return to_all ? dsc_all_to_all_v(world, in, counts, out, counts, kI32, nullptr, nullptr)
                      : dsc_all_gather_v(world, in, out, counts, kI32, nullptr, nullptr);
      },
      kCount,
      [&](int32_t i) {
        return of(i / kHalfCount, i % kHalfCount + (to_all ? it.rank->rank * kHalfCount : 0));
      });
}

dsc_result_t reduce_gradient(Everything& it) {
  it.gradient.fill(static_cast<float>(it.rank->rank + 1));
  dsc_result_t result = dsc_bucket_reducer_begin(it.reducer, nullptr);
  if (result == DSC_OK) result = dsc_bucket_reducer_mark_ready(it.reducer, 0, it.gradient.data(), nullptr);
  if (result == DSC_OK) result = dsc_bucket_reducer_finish(it.reducer, nullptr);
  return result;
}

// Memory that no refused call affects. If its pages stay shared, they end with it.
class OwnPages {
 public:
  static constexpr size_t kBytes = size_t{7} << 12;

  OwnPages()
      : data_(reinterpret_cast<int32_t*>(::syscall(SYS_mmap, nullptr, kBytes, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~OwnPages() { ::syscall(SYS_munmap, data_, kBytes); }
  OwnPages(const OwnPages&) = delete;
  OwnPages& operator=(const OwnPages&) = delete;

  std::span<int32_t> elements() const { return {data_, kBytes / sizeof(int32_t)}; }

 private:
  int32_t* const data_;
};

// The contents of the memory stay, whichever call fails.
dsc_result_t use_registered(Everything& it) {
  const OwnPages pages;
  const std::span<int32_t> data = pages.elements().subspan(100, 6900);
  const auto fills = [&](auto expected) {
    for (size_t i = 0; i < data.size(); ++i)
      if (data[i] != expected(static_cast<int32_t>(i))) return false;
    return true;
  };
  const auto own = [&](int32_t i) { return of(it.rank->rank, i); };
  for (size_t i = 0; i < data.size(); ++i) data[i] = own(static_cast<int32_t>(i));
  dsc_comm_t* const world = it.rank->world;
  dsc_result_t result = dsc_mem_register(world, data.data(), data.size_bytes());
  if (!fills(own)) return kWrong;
  if (result != DSC_OK) return result;
  result = dsc_all_reduce(world, data.data(), data.data(), data.size(), kI32, kSum, nullptr, nullptr);
  if (result == DSC_OK && !fills(summed)) return kWrong;
  const dsc_result_t ended = dsc_mem_unregister(data.data());
  if (result == DSC_OK && !fills(summed)) return kWrong;
  return result == DSC_OK ? ended : result;
}

struct Step {
  const char* name;
  dsc_result_t (*run)(Everything&);
};

dsc_comm_t* world(Everything& it) { return it.rank->world; }
size_t half_of(Everything& it) { return static_cast<size_t>(it.rank->rank) * kHalf; }

constexpr Step kSteps[] = {
    {"all_reduce", [](Everything& it) { return all_reduce(it, world(it), nullptr); }},
    {"all_reduce, asynchronous", [](Everything& it) { return all_reduce(it, world(it), &it.work); }},
    {"mem_alloc",
     [](Everything& it) {
       return dsc_mem_alloc(world(it), kCount * sizeof(int32_t), DSC_MEMORY_KIND_HOST, &it.memory);
     }},
    {"all_reduce of shared memory", all_reduce_shared},
    {"mem_register", use_registered},
    {"work_eventfd", all_reduce_watched},
    {"comm_split", [](Everything& it) { return dsc_comm_split(world(it), 0, 0, nullptr, &it.group); }},
    {"all_reduce of a group", [](Everything& it) { return all_reduce(it, it.group, nullptr); }},
    {"op_create_premul", [](Everything& it) { return dsc_op_create_premul(0.5, &it.scaled); }},
    {"reduce_scatter",
     [](Everything& it) {
       return operate(
           it,
           [&](const int32_t* in, int32_t* out) {
             return dsc_reduce_scatter(world(it), in, out, kHalf, kI32, kSum, nullptr, nullptr);
           },
           kHalf, [&](int32_t i) { return summed(i + static_cast<int32_t>(half_of(it))); });
     }},
    {"broadcast",
     [](Everything& it) {
       return operate(
           it,
           [&](const int32_t* in, int32_t* out) {
             return dsc_broadcast(world(it), in, out, kCount, kI32, 1, nullptr, nullptr);
           },
           kCount, [](int32_t i) { return of(1, i); });
     }},
    {"all_gather",
     [](Everything& it) {
       return operate(
           it,
           [&](const int32_t* in, int32_t* out) {
             return dsc_all_gather(world(it), in, out, kHalf, kI32, nullptr, nullptr);
           },
           kCount, [](int32_t i) { return of(i / kHalfCount, i % kHalfCount); });
     }},
    {"reduce",
     [](Everything& it) {
       return operate(
           it,
           [&](const int32_t* in, int32_t* out) {
             return dsc_reduce(world(it), in, out, kCount, kI32, kSum, 0, nullptr, nullptr);
           },
           it.rank->rank == 0 ? kCount : 0, summed);
     }},
    {"gather",
     [](Everything& it) {
       return operate(
           it,
           [&](const int32_t* in, int32_t* out) {
             return dsc_gather(world(it), in, out, kHalf, kI32, 1, nullptr, nullptr);
           },
           it.rank->rank == 1 ? kCount : 0, [](int32_t i) { return of(i / kHalfCount, i % kHalfCount); });
     }},
    {"scatter",
     [](Everything& it) {
       return operate(
           it,
           [&](const int32_t* in, int32_t* out) {
             return dsc_scatter(world(it), in, out, kHalf, kI32, 0, nullptr, nullptr);
           },
           kHalf, [&](int32_t i) { return of(0, i + static_cast<int32_t>(half_of(it))); });
     }},
    {"all_to_all",
     [](Everything& it) {
       return operate(
           it,
           [&](const int32_t* in, int32_t* out) {
             return dsc_all_to_all(world(it), in, out, kHalf, kI32, nullptr, nullptr);
           },
           kCount,
           [&](int32_t i) { return of(i / kHalfCount, i % kHalfCount + static_cast<int32_t>(half_of(it))); });
     }},
    {"all_gather_v", [](Everything& it) { return with_lengths(it, false); }},
    {"all_to_all_v", [](Everything& it) { return with_lengths(it, true); }},
    {"send and recv", [](Everything& it) { return exchange(it, false); }},
    {"send and recv in a group", [](Everything& it) { return exchange(it, true); }},
    {"bucket_reducer_create",
     [](Everything& it) {
       const dsc_tensor_t parameter = it.parameter();
       return dsc_bucket_reducer_create(world(it), &parameter, 1, nullptr, &it.reducer);
     }},
    {"bucket_reducer", reduce_gradient},
    {"verify_params",
     [](Everything& it) {
       const dsc_tensor_t parameter = it.parameter();
       return dsc_comm_verify_params(world(it), &parameter, 1);
     }},
    {"broadcast_coalesced",
     [](Everything& it) {
       const dsc_tensor_t parameter = it.parameter();
       return dsc_broadcast_coalesced(world(it), &parameter, 1, 0, 0);
     }},
    {"all_reduce_coalesced",
     [](Everything& it) {
       const dsc_tensor_t parameter = it.parameter();
       return dsc_all_reduce_coalesced(world(it), &parameter, 1, DSC_OP_SUM, 0);
     }},
    {"broadcast_shapes",
     [](Everything& it) {
       dsc_tensor_t parameter = it.parameter();
       int64_t shape[16];
       return dsc_broadcast_shapes(world(it), &parameter, 1, parameter.dtype, 0, shape);
     }},
    {"trace_text",
     [](Everything& it) {
       size_t bytes = 0;
       return dsc_trace_json(world(it), nullptr, 0, &bytes);
     }},
    {"comm_agree",
     [](Everything& it) {
       int32_t agreed = 0;
       return dsc_comm_agree(world(it), 1, &agreed);
     }},
    {"monitored_barrier", [](Everything& it) { return dsc_monitored_barrier(world(it), 5000); }},
    {"barrier", [](Everything& it) { return dsc_barrier(world(it), nullptr, nullptr); }},
};

// Checks that the result of a call is allowed; otherwise writes a note.
bool is_proper(Rank& rank, const char* name, dsc_result_t result) {
  if (result == DSC_OK || (result < 0 && result != kWrong && result != DSC_ERR_INTERNAL)) return true;
  rank.note("%s: %s: %s", name, result == kWrong ? "a wrong result" : dsc_result_name(result),
            dsc_last_error_message());
  return false;
}

// Ends everything. A rank that gives up while the communicator works must notify the other rank, which would
// wait for it otherwise. If the system refuses even that, it tries once more, because only one call may be
// refused.
void end(Everything& it, dsc_result_t result) {
  if (result != DSC_OK) dsc_comm_abort(it.rank->world);
  int32_t initialized = 0;
  dsc_bucket_reducer_destroy(it.reducer);
  dsc_work_destroy(it.work);
  dsc_mem_free(it.memory);
  dsc_op_destroy(it.scaled);
  dsc_comm_destroy(it.group);
  is_proper(*it.rank, "finalize", dsc_finalize());
  dsc_is_initialized(&initialized);
  if (initialized) dsc_finalize();
}

// Creates a world, makes all calls in it until one fails, and ends the world.
dsc_result_t do_everything(Rank& rank, size_t index, int init_timeout_ms, int timeout_ms) {
  static Everything everything;
  everything = Everything{};
  everything.rank = &rank;
  dsc_init_options_t options = rank.options();
  char job[48];
  std::snprintf(job, sizeof job, "%s-%zu", options.job_id, index);
  options.job_id = job;
  options.init_timeout_ms = init_timeout_ms;
  options.timeout_ms = timeout_ms;
  rank.world = nullptr;
  const char* name = "init";
  dsc_result_t result = dsc_init_distributed(&options, &rank.world);
  if (result == DSC_OK) {
    for (const Step& step : kSteps) {
      name = step.name;
      rank.report.outcomes[index].begin_us = now_us();
      result = step.run(everything);
      if (result != DSC_OK) break;
    }
  }
  is_proper(rank, name, result);
  rank.record(index, result, nullptr);
  Outcome& outcome = rank.report.outcomes[index];
  std::snprintf(outcome.operation, sizeof outcome.operation, "%s", name);
  if (rank.world) end(everything, result);
  return result;
}

// An uncaught exception: shows where it was thrown.
[[noreturn]] void show_stack() {
  refuse_no_more();
  void* places[48];
  const int count = backtrace(places, 48);
  backtrace_symbols_fd(places, count, STDERR_FILENO);
  std::abort();
}

struct Holdings {
  int64_t descriptors = INT64_MAX;
  int64_t maps = INT64_MAX;

  bool within(const Holdings& most) const { return descriptors <= most.descriptors && maps <= most.maps; }
};

// Returns the resources of this process. First waits a moment for another thread to release its resources.
Holdings take_holdings(const Holdings& expected) {
  sleep_ms(5);
  for (const int64_t end = now_ms() + kAtOnceMs;; sleep_ms(5)) {
    const census_t census = take_census();
    const Holdings holdings{census.descriptors, census.maps};
    if (holdings.within(expected) || now_ms() > end) return holdings;
  }
}

// The calls of one rank that are refused: those of one kind from `first` to `last`.
struct Refusal {
  int culprit;
  int kind;
  int64_t first;
  int64_t last;
};

// Makes all calls while the system refuses some of them, then makes all calls again without refusals.
int body(Rank& rank, const Refusal& refusal, const Holdings& expected) {
  std::set_terminate(show_stack);
  if (rank.rank == refusal.culprit) refuse_calls(refusal.kind, refusal.first, refusal.last);
  do_everything(rank, 0, kShortInitMs, kShortMs);
  refuse_no_more();
  for (int kind = 0; rank.rank == refusal.culprit && refuse_name(kind); ++kind)
    (*calls_made)[kind] = refuse_count(kind);
  rank.reach(kBack);
  if (!rank.await_order(kAgain, kPatienceMs)) return 2;
  const dsc_result_t again = do_everything(rank, 1, kPatienceMs, kPatienceMs);
  if (again != DSC_OK) rank.note("afterwards: %s: %s", dsc_result_name(again), rank.report.outcomes[1].text);
  const Holdings holdings = take_holdings(expected);
  rank.report.numbers[kDescriptors] = holdings.descriptors;
  rank.report.numbers[kMaps] = holdings.maps;
  return again == DSC_OK && rank.report.note[0] == 0 ? 0 : 3;
}

struct Trial {
  Calls calls{};        // made by the culprit, including refused ones
  bool failed = false;  // some rank got an error
  std::string problem;  // empty if there is none
  Holdings holdings[kSize];
};

// Describes what is wrong with the first round of a rank. Empty if nothing is wrong. One refused call must
// end its operation immediately, so that no rank waits until the time-out of an operation. Only the short
// time-out of start-up is allowed. If all further calls are refused, a rank may wait until its time-out.
std::string judge_first(const Crew& crew, int rank, bool lasting) {
  const Outcome& outcome = crew.outcome(rank, 0);
  const bool waited = outcome.end_us - outcome.begin_us > (kShortMs - 100) * int64_t{1000};
  if (outcome.result != DSC_ERR_TIMEOUT || lasting || !waited || std::strcmp(outcome.operation, "init") == 0)
    return "";
  return format("%s timed out: ", outcome.operation) + describe(rank, outcome) + "; " +
         crew.outcome(1 - rank, 0).operation + " " + describe(1 - rank, crew.outcome(1 - rank, 0));
}

std::string judge_last(const Crew& crew, int rank, const Holdings& expected, Trial& trial) {
  Holdings& holdings = trial.holdings[rank];
  holdings = {crew.report(rank).numbers[kDescriptors], crew.report(rank).numbers[kMaps]};
  if (crew.status(rank) != 0) return crew.describe() + "\nat first: " + describe(rank, crew.outcome(rank, 0));
  if (holdings.within(expected)) return "";
  return format("rank %d has %lld descriptors and %lld maps at the end, usually %lld and %lld", rank,
                (long long)holdings.descriptors, (long long)holdings.maps, (long long)expected.descriptors,
                (long long)expected.maps);
}

Trial attempt(const Refusal& refusal, const Holdings (&expected)[kSize]) {
  Trial trial;
  Crew crew(kSize, [&](Rank& rank) { return body(rank, refusal, expected[rank.rank]); });
  if (!crew.await_stage_of_all(kBack, kPatienceMs)) {
    trial.problem = "hangs, or died" + crew.describe() + crew.stacks();
    return trial;
  }
  trial.calls = *calls_made;
  for (int rank = 0; rank < kSize; ++rank) {
    trial.failed = trial.failed || crew.outcome(rank, 0).result != DSC_OK;
    trial.problem += judge_first(crew, rank, refusal.last > refusal.first);
  }
  crew.order(kAgain);
  if (!crew.await_end_of_all(kPatienceMs)) trial.problem += "hangs afterwards" + crew.stacks();
  for (int rank = 0; rank < kSize; ++rank) trial.problem += judge_last(crew, rank, expected[rank], trial);
  return trial;
}

struct Tally {
  int trials = 0;
  int failures = 0;  // trials in which some rank got an error
  int problems = 0;
};

// Refuses the n-th call for n = 1, 2, ... until there are no more calls. In CI it refuses only some of them.
void sweep_calls(int culprit, int kind, bool lasting, const Trial& usual, Tally& tally) {
  const int64_t most = at_length() ? 1'000'000 : test_repetitions(lasting ? 1 : 3, 1);
  const int64_t only = setting("DSC_TEST_TRIAL", 0);
  const int64_t usual_calls = usual.calls[static_cast<size_t>(kind)];
  const int64_t stride = std::max<int64_t>(1, (usual_calls + most - 1) / most);
  for (int64_t n = only > 0 ? only : 1 + now_us() % stride; stride == 1 || n <= usual_calls; n += stride) {
    const Trial trial = attempt({culprit, kind, n, lasting ? INT64_MAX : n}, usual.holdings);
    if (!trial.problem.empty())
      print_error("%s number %lld%s of rank %d (DSC_TEST_KIND=%d DSC_TEST_TRIAL=%lld): %s\n",
                  refuse_name(kind), (long long)n, lasting ? " and all later ones" : "", culprit, kind,
                  (long long)n, trial.problem.c_str());
    ++tally.trials;
    tally.failures += trial.failed;
    tally.problems += !trial.problem.empty();
    if (only > 0 || trial.calls[static_cast<size_t>(kind)] < n) return;
  }
}

void sweep(bool lasting) {
  const auto only = static_cast<int>(setting("DSC_TEST_KIND", -1));
  const int64_t turn = now_us();  // selects whose calls are refused in CI, for each kind
  Tally tally;
  for (int culprit = 0; culprit < kSize; ++culprit) {
    const Holdings anything[kSize];
    const Trial usual = attempt({culprit, 0, INT64_MAX, INT64_MAX}, anything);
    if (!usual.problem.empty()) fail_msg("nothing refused: %s", usual.problem.c_str());
    for (int kind = 0; refuse_name(kind); ++kind) {
      if (only >= 0 ? only != kind : !at_length() && (turn + kind) % kSize != culprit) continue;
      const Tally before = tally;
      sweep_calls(culprit, kind, lasting, usual, tally);
      if (at_length())
        print_message("rank %d, %s: %d trials, %d with an error\n", culprit, refuse_name(kind),
                      tally.trials - before.trials, tally.failures - before.failures);
    }
  }
  print_message("%d trials, %d with an error\n", tally.trials, tally.failures);
  assert_int_equal(tally.problems, 0);
  if (only < 0) assert_true(tally.failures > 0);
}

void test_one_call_is_refused(void**) { sweep(false); }

void test_all_calls_are_refused_from_one_on(void**) { sweep(true); }

}  // namespace

int main() {
  isolate();
  calls_made = static_cast<Calls*>(
      mmap(nullptr, sizeof(Calls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_one_call_is_refused, end_everything),
      cmocka_unit_test_teardown(test_all_calls_are_refused_from_one_on, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
