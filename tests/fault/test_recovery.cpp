// Ranks die at any moment, also while the others agree and shrink, and at any instruction of these calls. The
// survivors must agree on one value and one group, and must be able to continue.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <random>
#include <thread>

#include "crew.hpp"
#include "single_step.hpp"
#include "sweep.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr size_t kCount = size_t{64} << 10;  // elements of shared memory
constexpr size_t kSmall = 100;
constexpr int kMostRanks = 8;
constexpr int kMostGenerations = 24;

// ---- what every rank records; the records of a dead rank stay readable ----

// One communicator of a trial: first the world, then the communicator shrunk from it, and so on.
struct Generation {
  std::atomic<uint32_t> members;  // a bit mask of world ranks; 0 if this rank was not a member
  std::atomic<int32_t> flags;
  std::atomic<int32_t> agreed;
  std::atomic<uint32_t> agree_missed;   // a bit mask of world ranks
  std::atomic<uint32_t> shrink_missed;  // a bit mask of world ranks
  std::atomic<int32_t> has_agreed;
  std::atomic<int32_t> has_shrunk;
  std::atomic<int64_t> works_us;  // the time of the first successful operation
};

struct Diary {
  Generation generations[kMostRanks][kMostGenerations];
  std::atomic<int64_t> last_death_us;
  std::atomic<int32_t> ready;  // the number of ranks that have their memory
};

// Memory that a test shares with the ranks that it starts.
class SharedDiary {
 public:
  SharedDiary()
      : diary_(new (mmap(nullptr, sizeof(Diary), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                   Diary{}) {}
  ~SharedDiary() { munmap(diary_, sizeof(Diary)); }
  SharedDiary(const SharedDiary&) = delete;
  SharedDiary& operator=(const SharedDiary&) = delete;
  Diary& operator*() const { return *diary_; }
  Diary* operator->() const { return diary_; }

 private:
  Diary* diary_;
};

// ---- the plan of a trial ----

enum class KilledIn { kWork, kAgree, kShrink };

// Rank `rank` dies in generation `generation`: before its work, or inside a call after a number of
// instructions or some time.
struct Death {
  int rank;
  int generation;
  KilledIn place;
  int64_t instruction = 0;
  int64_t delay_ns = 0;
};

struct Plan {
  uint32_t seed;  // the seed of the random flags that ranks pass to agree
  int size;
  std::vector<Death> deaths;  // the deaths that the victims cause themselves
  // true: until the test orders the end; false: until the generations with deaths are over
  bool until_ordered;
};

int last_generation(const Plan& plan) {
  int last = -1;
  for (const Death& death : plan.deaths) last = std::max(last, death.generation);
  return last;
}

std::string describe(const Plan& plan) {
  std::string text = format("%d ranks", plan.size);
  for (const Death& death : plan.deaths)
    text += format("; rank %d dies in generation %d, %s, instruction %lld, after %lld ns", death.rank,
                   death.generation,
                   death.place == KilledIn::kWork    ? "before its work"
                   : death.place == KilledIn::kAgree ? "in agree"
                                                     : "in shrink",
                   (long long)death.instruction, (long long)death.delay_ns);
  return text;
}

// Kills this process some time after the construction, unless the object is destroyed before.
class DeathByTime {
 public:
  explicit DeathByTime(int64_t delay_ns) : thread_([this, delay_ns] { run(delay_ns); }) {}
  ~DeathByTime() {
    survived_ = true;
    thread_.join();
  }

 private:
  void run(int64_t delay_ns) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(delay_ns);
    while (!survived_)
      if (std::chrono::steady_clock::now() >= end) kill(getpid(), SIGKILL);
  }

  std::atomic<bool> survived_{false};
  std::thread thread_;
};

// ---- a rank ----

class Survivor {
 public:
  Survivor(Rank& rank, const Plan& plan, Diary& diary)
      : rank_(rank), plan_(plan), diary_(diary), comm_(rank.world), plain_(kSmall) {}

  int run() {
    void* shared = nullptr;
    if (dsc_mem_alloc(rank_.world, kCount * sizeof(uint32_t), DSC_MEMORY_KIND_HOST, &shared) != DSC_OK)
      return 3;
    shared_ = static_cast<uint32_t*>(shared);
    ++diary_.ready;
    rank_.reach(1);
    for (; generation_ < kMostGenerations; ++generation_) {
      note_members();
      const bool well = work();
      if (!rank_.report.note[0] && well && (plan_.until_ordered || generation_ > last_generation(plan_)))
        return end();
      if (rank_.report.note[0] || !agree() || !shrink()) return 4;
    }
    rank_.note("more generations than there can be");
    return 5;
  }

 private:
  Generation& now() { return diary_.generations[rank_.rank][generation_]; }

  // Returns the missing ranks of comm_ as a bit mask of world ranks.
  uint32_t missed() {
    int32_t ranks[kMostRanks];
    size_t count = 0;
    dsc_comm_missing(comm_, ranks, kMostRanks, &count);
    uint32_t bits = 0;
    for (size_t i = 0; i < count; ++i) bits |= 1u << members_[static_cast<size_t>(ranks[i])];
    return bits;
  }

  void note_members() {
    int32_t size = 0;
    dsc_comm_size(comm_, &size);
    members_.assign(static_cast<size_t>(size), 0);
    uint32_t bits = 0;
    for (int32_t i = 0; i < size; ++i) {
      dsc_comm_global_rank(comm_, i, &members_[static_cast<size_t>(i)]);
      bits |= 1u << members_[static_cast<size_t>(i)];
    }
    now().members = bits;
  }

  const Death* death_at(KilledIn place) const {
    for (const Death& death : plan_.deaths)
      if (death.rank == rank_.rank && death.generation == generation_ && death.place == place) return &death;
    return nullptr;
  }

  // Makes a call during which this rank may have to die.
  template <typename Call>
  dsc_result_t mortal(KilledIn place, Call&& call) {
    const Death* death = death_at(place);
    if (!death) return call();
    if (death->instruction == 0) {
      const DeathByTime by_time(death->delay_ns);
      return call();
    }
    arm(death->instruction, SIGKILL);
    const dsc_result_t result = call();
    disarm();
    return result;
  }

  // Reduces shared and plain memory until an operation fails, then returns false.
  bool work() {
    if (death_at(KilledIn::kWork)) {
      // If a rank dies after its dsc_mem_alloc() returned, the call may still fail on a slower rank, as with
      // any operation. So wait until all ranks are ready.
      for (int tries = 0; diary_.ready < rank_.size && tries < 10'000; ++tries) sleep_ms(1);
      die();
    }
    const uint32_t size = static_cast<uint32_t>(members_.size());
    uint32_t ranks = 0;
    for (const int32_t member : members_) ranks += static_cast<uint32_t>(member);
    for (uint32_t turn = 0;; ++turn) {
      for (size_t i = 0; i < kCount; ++i) shared_[i] = static_cast<uint32_t>(i) + turn + me();
      for (size_t i = 0; i < kSmall; ++i) plain_[i] = static_cast<uint32_t>(i) * turn + me();
      int32_t end = plan_.until_ordered ? rank_.ordered(1) : turn >= 2;
      if (reduce(shared_, kCount) != DSC_OK || reduce(plain_.data(), kSmall) != DSC_OK ||
          dsc_all_reduce(comm_, &end, &end, 1, DSC_DTYPE_I32, DSC_OP_MIN, nullptr, nullptr) != DSC_OK)
        return false;
      for (size_t i = 0; i < kCount; ++i)
        if (shared_[i] != (static_cast<uint32_t>(i) + turn) * size + ranks)
          return rank_.note("generation %d: element %zu of shared memory is wrong", generation_, i), false;
      for (size_t i = 0; i < kSmall; ++i)
        if (plain_[i] != static_cast<uint32_t>(i) * turn * size + ranks)
          return rank_.note("generation %d: element %zu of plain memory is wrong", generation_, i), false;
      if (turn == 0) now().works_us = now_us();
      if (end) return true;
    }
  }

  dsc_result_t reduce(uint32_t* data, size_t count) {
    return dsc_all_reduce(comm_, data, data, count, DSC_DTYPE_U32, DSC_OP_SUM, nullptr, nullptr);
  }

  uint32_t me() const { return static_cast<uint32_t>(rank_.rank); }

  void die() {
    diary_.last_death_us = now_us();
    kill(getpid(), SIGKILL);
  }

  bool agree() {
    std::mt19937 random(plan_.seed * 64 + static_cast<uint32_t>(generation_) * 8 + me());
    const int32_t flags = static_cast<int32_t>(random() | random());
    now().flags = flags;
    int32_t agreed = 0;
    const dsc_result_t result =
        mortal(KilledIn::kAgree, [&] { return dsc_comm_agree(comm_, flags, &agreed); });
    if (result != DSC_OK)
      return rank_.note("agree in generation %d: %s", generation_, dsc_last_error_message()), false;
    now().agreed = agreed;
    now().agree_missed = missed();
    now().has_agreed = 1;
    return true;
  }

  bool shrink() {
    dsc_comm_t* shrunk = nullptr;
    const dsc_result_t result =
        mortal(KilledIn::kShrink, [&] { return dsc_comm_shrink(comm_, nullptr, &shrunk); });
    if (result != DSC_OK)
      return rank_.note("shrink in generation %d: %s", generation_, dsc_last_error_message()), false;
    now().shrink_missed = missed();
    now().has_shrunk = 1;
    // The handle of the world is kept, because dsc_finalize() closes it.
    if (comm_ != rank_.world && dsc_comm_destroy(comm_) != DSC_OK) rank_.note("destroy failed");
    comm_ = shrunk;
    return true;
  }

  // Ends in the normal way and immediately joins a world of the survivors.
  int end() {
    if (dsc_mem_free(shared_) != DSC_OK) rank_.note("free: %s", dsc_last_error_message());
    if (dsc_finalize() != DSC_OK) rank_.note("finalize: %s", dsc_last_error_message());
    if (comm_ != rank_.world && dsc_comm_destroy(comm_) != DSC_OK) rank_.note("destroy failed");
    dsc_init_options_t options = rank_.options();
    options.world_size = static_cast<int32_t>(members_.size());
    options.rank =
        static_cast<int32_t>(std::find(members_.begin(), members_.end(), rank_.rank) - members_.begin());
    if (!rank_.join(options)) return 6;
    if (dsc_barrier(rank_.world, nullptr, nullptr) != DSC_OK) rank_.note("the next world does not work");
    if (dsc_finalize() != DSC_OK) rank_.note("the next finalize: %s", dsc_last_error_message());
    return rank_.report.note[0] ? 7 : 0;
  }

  Rank& rank_;
  const Plan& plan_;
  Diary& diary_;
  dsc_comm_t* comm_;
  int generation_ = 0;
  std::vector<int32_t> members_;  // the members of comm_, as world ranks
  uint32_t* shared_ = nullptr;
  std::vector<uint32_t> plain_;
};

int survive(Rank& rank, const Plan& plan, Diary& diary) {
  if (!rank.join(rank.options())) return 2;
  return Survivor(rank, plan, diary).run();
}

// ---- checks of what the ranks recorded ----

// If two ranks have results of the same call, the results must be equal, even if one of the ranks is dead
// now.
std::string compare_ranks(const Diary& diary, int size, int generation) {
  const Generation* agreed = nullptr;
  const Generation* shrunk = nullptr;
  const Generation* member = nullptr;
  for (int rank = 0; rank < size; ++rank) {
    const Generation& mine = diary.generations[rank][generation];
    if (mine.members == 0) continue;
    if (!member) member = &mine;
    if (mine.members != member->members) return format("generation %d has two lists of members", generation);
    if (mine.has_agreed) {
      if (!agreed) agreed = &mine;
      if (mine.agreed != agreed->agreed || mine.agree_missed != agreed->agree_missed)
        return format("in generation %d ranks agreed on %x (missed %x) and on %x (missed %x)", generation,
                      static_cast<unsigned>(agreed->agreed), agreed->agree_missed.load(),
                      static_cast<unsigned>(mine.agreed), mine.agree_missed.load());
    }
    if (mine.has_shrunk) {
      if (!shrunk) shrunk = &mine;
      if (mine.shrink_missed != shrunk->shrink_missed)
        return format("generation %d was shrunk without %x and without %x", generation,
                      shrunk->shrink_missed.load(), mine.shrink_missed.load());
    }
  }
  return "";
}

// The agreed value combines the flags of all ranks that were not missed. It may or may not include those of
// missed ranks.
std::string check_value(const Diary& diary, int size, int generation) {
  for (int rank = 0; rank < size; ++rank) {
    const Generation& mine = diary.generations[rank][generation];
    if (mine.has_agreed == 0) continue;
    int32_t most = -1, least = -1;
    for (int other = 0; other < size; ++other) {
      if ((mine.members >> other & 1) == 0) continue;
      const int32_t flags = diary.generations[other][generation].flags;
      least &= flags;
      if ((mine.agree_missed >> other & 1) == 0) most &= flags;
    }
    if ((mine.agreed & ~most) != 0 || (least & ~mine.agreed) != 0)
      return format("generation %d agreed on %x, expected between %x and %x", generation,
                    static_cast<unsigned>(mine.agreed.load()), static_cast<unsigned>(least),
                    static_cast<unsigned>(most));
  }
  return "";
}

std::string judge(const Crew& crew, const Diary& diary) {
  uint32_t alive = 0;
  for (int rank = 0; rank < crew.size(); ++rank) {
    if (crew.status(rank) == 128 + SIGKILL) continue;
    if (crew.status(rank) != 0) return format("rank %d ended with status %d", rank, crew.status(rank));
    alive |= 1u << rank;
  }
  uint32_t last = 0;
  for (int generation = 0; generation < kMostGenerations; ++generation) {
    std::string problem = compare_ranks(diary, crew.size(), generation);
    if (problem.empty()) problem = check_value(diary, crew.size(), generation);
    if (!problem.empty()) return problem;
    for (int rank = 0; rank < crew.size(); ++rank)
      if (const uint32_t members = diary.generations[rank][generation].members; members != 0) last = members;
  }
  if (last != alive) return format("the last group has ranks %x, alive are %x", last, alive);
  return "";
}

// ---- trials ----

// Measures the time from the last death until all survivors had the result of an operation.
void measure(const Crew& crew, const Diary& diary, int64_t last_death_us, Sweep& sweep) {
  int64_t works_us = 0;
  for (int rank = 0; rank < crew.size(); ++rank)
    for (const Generation& generation : diary.generations[rank])
      if (crew.status(rank) == 0) works_us = std::max(works_us, generation.works_us.load());
  if (last_death_us != 0 && works_us > last_death_us)
    sweep.add("last death to first result", works_us - last_death_us);
}

// Runs a crew by a plan. `disturb` may kill ranks during the run, and returns the time of the last kill.
void run_trial(const Plan& plan, Sweep& sweep, const std::function<int64_t(Crew&)>& disturb) {
  const SharedDiary diary;
  std::string problem;
  {
    Crew crew(plan.size, [&](Rank& rank) { return survive(rank, plan, *diary); });
    const int64_t killed_us = disturb(crew);
    if (!crew.await_end_of_all(60'000 * slowdown())) problem = "a rank hangs" + crew.stacks();
    if (problem.empty()) problem = judge(crew, *diary);
    if (problem.empty()) measure(crew, *diary, std::max(killed_us, diary->last_death_us.load()), sweep);
    if (!problem.empty()) problem += crew.describe();
  }
  if (!problem.empty()) fail_msg("%s%s: %s", sweep.replay().c_str(), describe(plan).c_str(), problem.c_str());
}

Plan make_plan(std::mt19937_64& random, int size, bool until_ordered, std::vector<int>& victims) {
  victims.clear();
  for (int rank = 0; rank < size; ++rank) victims.push_back(rank);
  std::shuffle(victims.begin(), victims.end(), random);
  return {static_cast<uint32_t>(random()), size, {}, until_ordered};
}

// The test kills up to all but one rank, at random moments.
void test_killed_at_any_moment(void**) {
  const Traces traces;
  Sweep sweep("recoveries from kills at any moment", 60, {.least = 4});
  while (sweep.next()) {
    std::mt19937_64 random = sweep.random();
    std::vector<int> victims;
    const int size = 2 + static_cast<int>(random() % 4);
    const Plan plan = make_plan(random, size, true, victims);
    victims.resize(1 + random() % static_cast<uint64_t>(size - 1));
    run_trial(plan, sweep, [&](Crew& crew) {
      int64_t last_us = 0;
      crew.await_stage_of_all(1, 20'000 * slowdown());
      for (const int victim : victims) {
        // Most kills follow soon after the previous one, in the middle of the recovery.
        usleep(static_cast<useconds_t>(random() % (random() % 4 == 0 ? 20'000 : 2'000)));
        last_us = crew.signal(victim, SIGKILL);
      }
      for (const int victim : victims) crew.await_end(victim, 30'000 * slowdown());
      crew.order(1);
      return last_us;
    });
  }
  const std::string left = traces.left();
  if (!left.empty()) fail_msg("left behind:%s", left.c_str());
  sweep.report();
}

int64_t leave_alone(Crew&) { return 0; }

// Both calls take several thousand instructions and one millisecond. Waiting takes a different number each
// time. Stepping over an instruction costs up to 40 us.
constexpr uint64_t kInstructions = 3000;
constexpr uint64_t kLongestNs = 4'000'000;

Death in_call(std::mt19937_64& random, int rank, int generation) {
  Death death{rank, generation, random() % 2 == 0 ? KilledIn::kAgree : KilledIn::kShrink};
  const bool small = random() % 2 == 0;
  if (can_single_step() && random() % 3 != 0)
    death.instruction = 1 + static_cast<int64_t>(random() % (small ? kInstructions / 10 : kInstructions));
  else
    death.delay_ns = static_cast<int64_t>(random() % (small ? kLongestNs / 10 : kLongestNs));
  return death;
}

// One rank dies, and one or two others die while they recover from that death.
void test_killed_at_any_instruction(void**) {
  Sweep sweep("recoveries from deaths in agree and shrink", 80, {.least = 8});
  while (sweep.next()) {
    std::mt19937_64 random = sweep.random();
    std::vector<int> victims;
    Plan plan = make_plan(random, 3 + static_cast<int>(random() % 2), false, victims);
    plan.deaths.push_back({victims[0], 0, KilledIn::kWork});
    plan.deaths.push_back(in_call(random, victims[1], 0));
    if (plan.size > 3 && random() % 2 == 0) plan.deaths.push_back(in_call(random, victims[2], 0));
    run_trial(plan, sweep, leave_alone);
  }
  sweep.report();
}

// Eight ranks die until one is left: in every generation one or two more.
void test_killed_one_after_another(void**) {
  Sweep sweep("eight ranks die one after another", 10, {.least = 2});
  while (sweep.next()) {
    std::mt19937_64 random = sweep.random();
    std::vector<int> victims;
    Plan plan = make_plan(random, kMostRanks, false, victims);
    const bool two = sweep.trial() % 2 != 0;
    for (int generation = 0; generation < (two ? 3 : 7); ++generation) {
      plan.deaths.push_back({victims[static_cast<size_t>(generation)], generation, KilledIn::kWork});
      if (two)
        plan.deaths.push_back(in_call(random, victims[static_cast<size_t>(3 + generation)], generation));
    }
    run_trial(plan, sweep, leave_alone);
  }
  sweep.report();
}

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_killed_at_any_moment, end_everything),
      cmocka_unit_test_teardown(test_killed_at_any_instruction, end_everything),
      cmocka_unit_test_teardown(test_killed_one_after_another, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
