// A rank is stopped. The others report that, wait for it, and in the end their operation fails. When the rank
// runs again it must not write to memory that the others have reused.
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "crew.hpp"
#include "pauses.hpp"
#include "repetitions.h"
#include "sweep.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr size_t kBytes = size_t{8} << 20;
constexpr size_t kShifts = 16;
constexpr size_t kShift = 16;  // in elements
constexpr size_t kCount = kBytes / sizeof(uint32_t) - kShifts * kShift;
constexpr int kStallTimeoutMs = 2500;
constexpr int kAtOnce = 6;  // crews that run at the same time
constexpr uint8_t kPattern = 0xA5;
constexpr int64_t kReportedWithinUs = 2'000'000;
constexpr const char* kReportDelay = "from the stop to its report";

enum Stage { kRunning = 1, kEnded = 2, kFilled = 3, kChecked = 4 };
enum Order { kFinish = 1, kCheck = 2 };
// Indices of Report::numbers, which the log's thread and the watching thread write while the rank runs. They
// count the reports about the rank kSuspect. `pauses` records which other ranks are accused.
enum Number : size_t { kReportedUs, kStallRecords, kPrivateRecords, kChangedBytes, kSuspect };
constexpr int kNobody = -1;

Pauses* pauses = nullptr;  // shared with the ranks that start now, if the test looks for accusations

class NotedPauses : public Pauses {
 public:
  explicit NotedPauses(int size) : Pauses(size) { pauses = this; }
  ~NotedPauses() { pauses = nullptr; }
};

std::atomic_ref<int64_t> number_of(Rank& rank, Number which) {
  return std::atomic_ref<int64_t>(rank.report.numbers[which]);
}

void on_log(void* context, const dsc_log_record_t* record) {
  Rank& rank = *static_cast<Rank*>(context);
  const int accused = accused_by(record->message);
  if (accused >= 0 && accused == rank.report.numbers[kSuspect])
    number_of(rank, kStallRecords).fetch_add(1);
  else if (pauses)
    pauses->note_accusation(accused, now_us());
  if (std::strstr(record->message, "became private")) number_of(rank, kPrivateRecords).fetch_add(1);
}

// Runs all-reduces, gathers and messages one after another and checks each result. In all of them, ranks
// write to the shared memory of others. It is the library's, or memory of the program that is registered.
class Reductions {
 public:
  explicit Reductions(Rank& rank, bool registered = false) : rank_(rank), registered_(registered) {}

  bool prepare(int stall_timeout_ms) {
    dsc_log_set_callback(on_log, &rank_, DSC_LOG_LEVEL_WARN);
    dsc_init_options_t options = rank_.options();
    if (stall_timeout_ms > 0) options.stall_timeout_ms = stall_timeout_ms;
    if (!rank_.join(options)) return false;
    send_ = share();
    recv_ = share();
    if (!send_ || !recv_) return false;
    for (size_t i = 0; i < kBytes / sizeof(uint32_t); ++i)
      send_[i] = static_cast<uint32_t>(i) * 0xC2B2AE35u + static_cast<uint32_t>(rank_.rank);
    plain_.assign(send_, send_ + kBytes / sizeof(uint32_t));
    return true;
  }

  // Runs until the test orders the end, or until a failure.
  dsc_result_t run() {
    for (size_t turn = 0;; ++turn) {
      const size_t first = turn % kShifts * kShift;
      dsc_result_t result = turn % 3 == 0 ? reduce(first) : turn % 3 == 1 ? gather(first) : pass_on(first);
      if (result != DSC_OK) return result;
      rank_.report.operations.fetch_add(1);
      int32_t end = rank_.ordered(kFinish);
      result = dsc_all_reduce(rank_.world, &end, &end, 1, DSC_DTYPE_I32, DSC_OP_MAX, nullptr, nullptr);
      if (result != DSC_OK || end) return result;
    }
  }

  void fill() {
    std::memset(send_, kPattern, kBytes);
    std::memset(recv_, kPattern, kBytes);
  }
  int64_t changed_bytes() const { return changed(send_) + changed(recv_); }

  // Registered memory is the program's own again, also after a failure. Returns false if it is not.
  bool end() {
    for (uint32_t* const memory : {send_, recv_}) {
      if (registered_ && dsc_mem_unregister(memory) != DSC_OK) {
        rank_.note("%s", dsc_last_error_message());
        return false;
      }
    }
    return true;
  }

 private:
  // Returns memory that other ranks can write to. Null after an error.
  uint32_t* share() {
    void* memory = registered_ ? std::malloc(kBytes) : nullptr;
    const dsc_result_t result = registered_
                                    ? dsc_mem_register(rank_.world, memory, kBytes)
                                    : dsc_mem_alloc(rank_.world, kBytes, DSC_MEMORY_KIND_HOST, &memory);
    return result == DSC_OK ? static_cast<uint32_t*>(memory) : nullptr;
  }

  static int64_t changed(const uint32_t* memory) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(memory);
    return std::count_if(bytes, bytes + kBytes, [](uint8_t byte) { return byte != kPattern; });
  }

  dsc_result_t reduce(size_t first) {
    const uint32_t size = static_cast<uint32_t>(rank_.size);
    const dsc_result_t result = dsc_all_reduce(rank_.world, send_ + first, recv_, kCount, DSC_DTYPE_U32,
                                               DSC_OP_SUM, nullptr, nullptr);
    if (result == DSC_OK) check(recv_, kCount, first, size, size * (size - 1) / 2);
    return result;
  }

  dsc_result_t gather(size_t first) {
    const size_t count = kCount / static_cast<size_t>(rank_.size);
    const dsc_result_t result =
        dsc_gather(rank_.world, send_ + first, recv_, count, DSC_DTYPE_U32, 0, nullptr, nullptr);
    for (uint32_t sender = 0;
         result == DSC_OK && rank_.rank == 0 && sender < static_cast<uint32_t>(rank_.size); ++sender)
      check(recv_ + sender * count, count, first, 1, sender);
    return result;
  }

  // Each rank sends ordinary memory to the next rank, and writes it into the memory of that rank.
  dsc_result_t pass_on(size_t first) {
    const int next = (rank_.rank + 1) % rank_.size;
    const int previous = (rank_.rank + rank_.size - 1) % rank_.size;
    dsc_work_t* sending = nullptr;
    dsc_result_t result =
        dsc_send(rank_.world, plain_.data() + first, kCount, DSC_DTYPE_U32, next, nullptr, &sending);
    if (result != DSC_OK) return result;
    result = dsc_recv(rank_.world, recv_, kCount, DSC_DTYPE_U32, previous, nullptr, nullptr);
    if (result == DSC_OK) check(recv_, kCount, first, 1, static_cast<uint32_t>(previous));
    const dsc_result_t sent = dsc_work_wait(sending, -1, nullptr);
    dsc_work_destroy(sending);
    return result == DSC_OK || result == DSC_ERR_REVOKED ? sent : result;
  }

  // Every element must be `factor` times that of rank 0, plus `more`.
  void check(const uint32_t* got, size_t count, size_t first, uint32_t factor, uint32_t more) {
    uint32_t difference = 0;
    const size_t step = slowdown() == 1 ? 1 : 61;  // checking every element would take longer than reducing
    for (size_t i = 0; i < count; i += step)
      difference |= got[i] ^ (static_cast<uint32_t>(first + i) * 0xC2B2AE35u * factor + more);
    if (difference != 0)
      rank_.note("operation %llu is wrong", (unsigned long long)rank_.report.operations.load());
  }

  Rank& rank_;
  const bool registered_;
  uint32_t* send_ = nullptr;
  uint32_t* recv_ = nullptr;
  std::vector<uint32_t> plain_;
};

// Waits for the report about a stopped rank, while the rank's own thread waits in an operation.
void watch_reports(Rank& rank, const std::atomic<bool>& ended) {
  for (; !ended.load(); sleep_ms(5)) {
    dsc_error_info_t info{};
    info.struct_size = sizeof info;
    if (dsc_comm_error_info(rank.world, &info) != DSC_OK) continue;
    if (info.code != DSC_ERR_PEER_STALLED || info.revoked) continue;
    if (info.rank != rank.report.numbers[kSuspect])
      pauses->note_accusation(info.rank, now_us());
    else if (number_of(rank, kReportedUs).load() == 0)
      number_of(rank, kReportedUs).store(now_us());
  }
}

int reduce_watched(Rank& rank, int stall_timeout_ms, int suspect) {
  rank.report.numbers[kSuspect] = suspect;
  Reductions reductions(rank);
  if (!reductions.prepare(stall_timeout_ms)) return 2;
  std::atomic<bool> ended{false};
  std::thread watcher([&] { watch_reports(rank, ended); });
  std::thread clock([&] { pauses->watch(rank.rank, ended); });
  rank.reach(kRunning);
  rank.record(0, reductions.run(), rank.world);
  ended = true;
  watcher.join();
  clock.join();
  rank.reach(kEnded);
  return rank.report.note[0] ? 3 : 0;
}

// Like the function above, but after the failure the memory is used for something else.
int reduce_and_reuse(Rank& rank, bool registered) {
  Reductions reductions(rank, registered);
  if (!reductions.prepare(kStallTimeoutMs)) return 2;
  rank.reach(kRunning);
  rank.record(0, reductions.run(), rank.world);
  reductions.fill();
  rank.reach(kFilled);
  if (!rank.await_order(kCheck, 60'000)) return 4;
  const int64_t changed_bytes = reductions.changed_bytes();
  if (!reductions.end()) return 5;
  number_of(rank, kChangedBytes).store(changed_bytes + reductions.changed_bytes());
  sleep_ms(20);  // lets the log's thread run
  rank.reach(kChecked);
  return rank.report.note[0] ? 3 : 0;
}

// Waits until all ranks except the victim have reported the stop, in the log as well.
void await_reports(const Crew& crew, int victim) {
  for (const int64_t end = now_ms() + kAtOnceMs; now_ms() < end; sleep_ms(5)) {
    int reports = 0;
    for (int rank = 0; rank < crew.size(); ++rank) {
      const int64_t* const numbers = crew.report(rank).numbers;
      reports += rank != victim && __atomic_load_n(&numbers[kReportedUs], __ATOMIC_ACQUIRE) != 0 &&
                 __atomic_load_n(&numbers[kStallRecords], __ATOMIC_ACQUIRE) != 0;
    }
    if (reports == crew.size() - 1) return;
  }
}

void test_stop_is_reported_and_waited_for(void**) {
  constexpr int kSize = 3;
  Sweep sweep("stops, and when they are reported", 6, {.least = 2});
  while (sweep.next()) {
    const int victim = sweep.trial() % kSize;
    const NotedPauses noted(kSize);
    Crew crew(kSize, [victim](Rank& rank) { return reduce_watched(rank, 0, victim); });
    if (!crew.await_stage_of_all(kRunning, 20'000 * slowdown()))
      fail_msg("no start%s", crew.describe().c_str());
    usleep(static_cast<useconds_t>(now_us() % 50'000));
    const int64_t stopped_us = crew.signal(victim, SIGSTOP);
    await_reports(crew, victim);
    crew.signal(victim, SIGCONT);
    crew.order(kFinish);
    if (!crew.await_end_of_all(60'000 * slowdown())) fail_msg("a rank hangs%s", crew.describe().c_str());
    for (int rank = 0; rank < kSize; ++rank) {
      if (crew.status(rank) != 0 || crew.outcome(rank, 0).result != DSC_OK)
        fail_msg("%s%s", describe(rank, crew.outcome(rank, 0)).c_str(), crew.describe().c_str());
      if (rank == victim) continue;
      const Report& report = crew.report(rank);
      if (report.numbers[kReportedUs] == 0) fail_msg("rank %d: no report", rank);
      assert_int_equal(report.numbers[kStallRecords], 1);
      sweep.add(kReportDelay, report.numbers[kReportedUs] - stopped_us);
    }
    const int accused = noted.accused_without_reason();
    if (accused >= 0) fail_msg("rank %d ran, and was accused beside rank %d", accused, victim);
  }
  sweep.report();
  sweep.expect_median(kReportDelay, kReportedWithinUs * slowdown());
}

struct Stop {
  std::unique_ptr<Crew> crew;
  int victim;
  int64_t stopped_us;
};

Stop stop_one(uint64_t seed) {
  std::mt19937_64 random(seed);
  const bool registered = seed % 2 == 1;
  Stop stop{std::make_unique<Crew>(
                4, [registered](Rank& rank) { return reduce_and_reuse(rank, registered); },
                static_cast<int>(seed % kAtOnce)),
            static_cast<int>(random() % 4), 0};
  if (!stop.crew->await_stage_of_all(kRunning, 20'000 * slowdown())) return stop;
  usleep(static_cast<useconds_t>(random() % 60'000));
  stop.stopped_us = stop.crew->signal(stop.victim, SIGSTOP);
  return stop;
}

// Describes what is wrong after the victim stayed stopped. `hits` grows if it was stopped while it worked on
// a chunk.
std::string judge(const Stop& stop, int& hits) {
  Crew& crew = *stop.crew;
  if (stop.stopped_us == 0) return "the ranks did not start" + crew.describe();
  int64_t last_us = 0;
  bool private_memory = false;
  for (int rank = 0; rank < crew.size(); ++rank) {
    if (rank == stop.victim) continue;
    const int most_ms = (kStallTimeoutMs + kAtOnceMs) * slowdown();
    const int left_ms = static_cast<int>(stop.stopped_us / 1000 + most_ms + kAtOnceMs - now_ms());
    if (!crew.await_stage(rank, kFilled, std::max(0, left_ms))) return "a rank hangs" + crew.describe();
    const Outcome& outcome = crew.outcome(rank, 0);
    const std::string name = format("rank %d (pid %d)", stop.victim, static_cast<int>(crew.pid(stop.victim)));
    if (outcome.result != DSC_ERR_PEER_STALLED || outcome.culprit != stop.victim || !outcome.revoked ||
        std::string(outcome.text).find(name) == std::string::npos)
      return describe(rank, outcome);
    last_us = std::max(last_us, outcome.end_us - stop.stopped_us);
    if (last_us > most_ms * int64_t{1000})
      return format("rank %d came back after %lld us", rank, (long long)last_us);
  }
  crew.signal(stop.victim, SIGCONT);
  if (!crew.await_stage(stop.victim, kFilled, 30'000 * slowdown()))
    return "the stopped rank hangs" + crew.describe();
  if (crew.outcome(stop.victim, 0).result == DSC_OK)
    return describe(stop.victim, crew.outcome(stop.victim, 0));
  crew.order(kCheck);
  if (!crew.await_end_of_all(30'000 * slowdown())) return "a rank hangs" + crew.describe();
  for (int rank = 0; rank < crew.size(); ++rank) {
    if (crew.status(rank) != 0) return crew.describe();
    if (rank == stop.victim) continue;
    private_memory |= crew.report(rank).numbers[kPrivateRecords] > 0;
    if (crew.report(rank).numbers[kChangedBytes] != 0)
      return format("%lld bytes of rank %d were written after it had left",
                    (long long)crew.report(rank).numbers[kChangedBytes], rank);
  }
  hits += private_memory;
  return "";
}

void test_stopped_rank_never_writes_into_reused_memory(void**) {
  const uint64_t seed = static_cast<uint64_t>(setting("DSC_TEST_SEED", now_us() % 1'000'000'000));
  print_message("DSC_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  const int wanted = slowdown() == 1 ? test_repetitions(6, 1) : 1;
  int hits = 0;
  int stops = 0;
  for (int batch = 0; batch < std::max(5, wanted) && hits < wanted; ++batch) {
    std::vector<Stop> all;
    for (int i = 0; i < kAtOnce; ++i) all.push_back(stop_one(seed + static_cast<uint64_t>(stops++)));
    std::string problem;
    for (const Stop& stop : all) {
      problem = judge(stop, hits);
      if (!problem.empty()) break;
    }
    all.clear();
    if (!problem.empty()) fail_msg("%s", problem.c_str());
  }
  print_message("%d of %d stops were inside a chunk\n", hits, stops);
  assert_true(hits > 0);
}

// Stops any ranks at random moments, each for less than the limit. No rank may notice more than a delay.
std::string stop_and_go(std::mt19937_64 random, Sweep& sweep) {
  constexpr int kSize = 3;
  const auto pick = [&random](uint64_t choices) { return static_cast<int>(random() % choices); };
  const int stall_timeout_ms = 10'000;
  const NotedPauses unused(kSize);
  Crew crew(kSize, [&](Rank& rank) { return reduce_watched(rank, stall_timeout_ms, kNobody); });
  if (!crew.await_stage_of_all(kRunning, 20'000 * slowdown())) return "no start" + crew.describe();
  // On a busy machine the ranks may not have run yet. Stops before the first operation would test nothing.
  for (int waits = 0; crew.report(0).operations.load() == 0; ++waits) {
    if (waits > 20'000 * slowdown()) return "no operation" + crew.describe();
    usleep(1000);
  }
  for (int stops = 0; stops < 8; ++stops) {
    usleep(static_cast<useconds_t>(pick(10'000)));
    const int victims = 1 + pick(7);  // a bit mask of ranks
    const auto signal_them = [&](int number) {
      for (int rank = 0; rank < kSize; ++rank)
        if ((victims >> rank & 1) != 0) crew.signal(rank, number);
    };
    signal_them(SIGSTOP);
    usleep(static_cast<useconds_t>(pick(stops == 0 ? 200'000 : 20'000)));
    signal_them(SIGCONT);
  }
  const uint64_t before = crew.report(0).operations.load();
  crew.order(kFinish);
  const int64_t continued_us = now_us();
  if (!crew.await_end_of_all(60'000 * slowdown())) return "a rank hangs" + crew.stacks();
  sweep.add("end after the last stop", now_us() - continued_us);
  for (int rank = 0; rank < kSize; ++rank)
    if (crew.status(rank) != 0 || crew.outcome(rank, 0).result != DSC_OK)
      return describe(rank, crew.outcome(rank, 0)) + crew.describe();
  return crew.report(0).operations.load() >= before && before > 0 ? "" : "nothing was done";
}

void test_stops_at_random_moments_change_nothing(void**) {
  Sweep sweep("stops at random moments, eight each", 8, {});
  while (sweep.next()) {
    const std::string problem = stop_and_go(sweep.random(), sweep);
    if (!problem.empty()) fail_msg("%s%s", sweep.replay().c_str(), problem.c_str());
  }
  sweep.report();
}

void test_all_stopped_accuse_nobody(void**) {
  constexpr int kCrews = 4;
  std::vector<std::unique_ptr<NotedPauses>> noted;
  std::vector<std::unique_ptr<Crew>> crews;
  std::vector<int64_t> going_us;
  for (int i = 0; i < kCrews; ++i) {
    noted.push_back(std::make_unique<NotedPauses>(3));
    crews.push_back(std::make_unique<Crew>(
        3, [](Rank& rank) { return reduce_watched(rank, kStallTimeoutMs, kNobody); }, i));
    if (!crews.back()->await_stage_of_all(kRunning, 20'000 * slowdown()))
      fail_msg("no start%s", crews.back()->describe().c_str());
  }
  sleep_ms(600);  // until all ranks have seen heartbeats of all others
  for (const auto& crew : crews) {
    usleep(static_cast<useconds_t>(now_us() % 200'000));
    crew->signal_all(SIGSTOP);
  }
  sleep_ms(3000);
  for (size_t i = 0; i < kCrews; ++i) {  // the first rank to run sees that the others do not run
    for (int rank = 0; rank < 3; ++rank, sleep_ms(60))
      crews[i]->signal(i % 2 == 0 ? 2 - rank : rank, SIGCONT);
    going_us.push_back(now_us());
  }
  sleep_ms(2000);  // long enough for an accusation
  for (const auto& crew : crews) crew->order(kFinish);
  for (size_t i = 0; i < kCrews; ++i) {
    Crew& crew = *crews[i];
    if (!crew.await_end_of_all(60'000 * slowdown())) fail_msg("a rank hangs%s", crew.describe().c_str());
    const int accused = noted[i]->accused_without_reason(going_us[i]);
    if (accused >= 0) fail_msg("rank %d went on, and was accused%s", accused, crew.describe().c_str());
    for (int rank = 0; rank < crew.size(); ++rank) {
      const Outcome& outcome = crew.outcome(rank, 0);
      const bool excused = noted[i]->any_accused() && outcome.code == DSC_ERR_PEER_STALLED;
      if (crew.status(rank) != 0 || !outcome.made || (outcome.result != DSC_OK && !excused))
        fail_msg("%s%s", describe(rank, outcome).c_str(), crew.describe().c_str());
    }
  }
}

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_stop_is_reported_and_waited_for, end_everything),
      cmocka_unit_test_teardown(test_stopped_rank_never_writes_into_reused_memory, end_everything),
      cmocka_unit_test_teardown(test_stops_at_random_moments_change_nothing, end_everything),
      cmocka_unit_test_teardown(test_all_stopped_accuse_nobody, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
