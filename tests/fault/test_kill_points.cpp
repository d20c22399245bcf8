// A rank is killed at every statement of the engine that an operation reaches, and at every instruction of a
// barrier. The other ranks are told which rank died, and successful results are correct.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <vector>

#include "breakpoints.hpp"
#include "crew.hpp"
#include "single_step.hpp"
#include "sweep.hpp"
#include "traces.hpp"

// Included last because they define macros such as fail().
extern "C" {
#include "traffic.h"

#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kMostSize = 4;
constexpr size_t kSmall = 100;  // elements of a small operation
constexpr size_t kLarge = size_t{32} << 10;
constexpr size_t kParts = size_t{140} << 10;  // more than fits into a stage
constexpr size_t kMostBytes = kParts * sizeof(uint32_t);

std::vector<CodeLocation> places;  // found before the debug files become inaccessible

// What a rank does after it has joined.
struct Scene {
  std::string name;
  enum Kind { kNothing, kCollective, kMessages, kSplit, kCreateGroup, kMemory, kRegister, kFinalize } kind;
  operation_t operation;  // the operation of the scenes kCollective and kMessages
  bool async;
};

std::vector<Scene> all_scenes() {
  std::vector<Scene> scenes{{"init", Scene::kNothing, {}, false},
                            {"split", Scene::kSplit, {}, false},
                            {"create_group", Scene::kCreateGroup, {}, false},
                            {"mem_alloc", Scene::kMemory, {}, false},
                            {"mem_register", Scene::kRegister, {}, false},
                            {"finalize", Scene::kFinalize, {}, false}};
  const auto add = [&scenes](Scene::Kind kind, kind_t what, size_t count, layout_t layout, bool async) {
    scenes.push_back({format("%s of %zu, %s%s", kind_name(what), count, layout == SHARED ? "shared" : "plain",
                             async ? ", with a work object" : ""),
                      kind,
                      {what, DSC_DTYPE_U32, DSC_OP_SUM, 0, count, layout, 5},
                      async});
  };
  for (int kind = 0; kind < BARRIER; ++kind) {
    add(Scene::kCollective, static_cast<kind_t>(kind), kSmall, PLAIN, kind % 2 == 1);
    add(Scene::kCollective, static_cast<kind_t>(kind), kind <= BROADCAST ? kParts : kLarge, PLAIN, false);
    add(Scene::kCollective, static_cast<kind_t>(kind), kLarge, SHARED, kind % 2 == 0);
  }
  add(Scene::kCollective, BARRIER, 0, PLAIN, false);
  add(Scene::kMessages, SEND, kLarge, PLAIN, false);
  add(Scene::kMessages, SEND, kLarge, SHARED, false);
  return scenes;
}

// The objects that a rank needs for a scene.
struct Stage {
  Rank& rank;
  rank_t self{rank.rank, rank.size, rank.world, nullptr, rank.report.note, {}, nullptr};
  arena_t arena{};
};

dsc_result_t wait_for(dsc_result_t started, dsc_work_t* work) {
  if (started != DSC_OK) return started;
  const dsc_result_t result = dsc_work_wait(work, -1, nullptr);
  dsc_work_destroy(work);
  return result;
}

dsc_result_t play_collective(const Scene& scene, Stage& stage) {
  const buffers_t buffers = prepare(&stage.arena, &scene.operation);
  dsc_work_t* work = nullptr;
  dsc_result_t result = call(stage.rank.world, &scene.operation, &buffers, scene.async ? &work : nullptr);
  if (scene.async) result = wait_for(result, work);
  if (result == DSC_OK) verify(&stage.arena, &scene.operation, &buffers);
  return result;
}

// Sends to the next rank and receives from the previous one.
dsc_result_t play_messages(const Scene& scene, Stage& stage) {
  operation_t sent = scene.operation;
  operation_t received = scene.operation;
  received.kind = RECV;
  sent.root = (stage.rank.rank + 1) % stage.rank.size;
  received.root = (stage.rank.rank + stage.rank.size - 1) % stage.rank.size;
  const buffers_t from = prepare(&stage.arena, &sent);
  const buffers_t to = prepare(&stage.arena, &received);
  dsc_work_t* work = nullptr;
  dsc_result_t result = call(stage.rank.world, &sent, &from, &work);
  if (result != DSC_OK) return result;
  result = call(stage.rank.world, &received, &to, nullptr);
  if (result == DSC_OK) verify(&stage.arena, &received, &to);
  const dsc_result_t other = wait_for(DSC_OK, work);
  return result == DSC_OK || result == DSC_ERR_REVOKED ? other : result;
}

// The contents of the memory stay, also if the call fails.
dsc_result_t register_memory(dsc_comm_t* world) {
  std::vector<char> memory(100'000, 'x');
  const dsc_result_t result = dsc_mem_register(world, memory.data(), memory.size());
  const auto changed = memory.size() - static_cast<size_t>(std::ranges::count(memory, 'x'));
  const dsc_result_t ended = result == DSC_OK ? dsc_mem_unregister(memory.data()) : DSC_OK;
  return changed == 0 && ended == DSC_OK ? result : DSC_ERR_INTERNAL;
}

dsc_result_t play(const Scene& scene, Stage& stage) {
  dsc_comm_t* group = nullptr;
  void* memory = nullptr;
  const int32_t reversed[kMostSize] = {stage.rank.size - 1, stage.rank.size - 2, stage.rank.size - 3, 0};
  switch (scene.kind) {
    case Scene::kNothing:
      return DSC_OK;
    case Scene::kCollective:
      return play_collective(scene, stage);
    case Scene::kMessages:
      return play_messages(scene, stage);
    case Scene::kSplit:
      return dsc_comm_split(stage.rank.world, 0, 0, nullptr, &group);
    case Scene::kCreateGroup:
      return dsc_comm_create_group(stage.rank.world, reversed, stage.rank.size, nullptr, &group);
    case Scene::kMemory:
      return dsc_mem_alloc(stage.rank.world, 100'000, DSC_MEMORY_KIND_HOST, &memory);
    case Scene::kRegister:
      return register_memory(stage.rank.world);
    case Scene::kFinalize:
      return dsc_comm_finalize(stage.rank.world);
  }
  return DSC_ERR_INTERNAL;
}

struct Death {
  int size;
  int victim;
  std::function<void()> prepare;
  std::function<void()> survived = [] {};  // runs after the scene if the rank survived it
};

// The part of one rank. numbers[0] is the time at which the call that failed began. The victim dies after the
// scene at the latest.
int perform(Rank& rank, const Scene& scene, const Death& death) {
  const bool dies = rank.rank == death.victim;
  dsc_init_options_t options = rank.options();
  if (scene.kind == Scene::kNothing) options.init_timeout_ms = 1600 * slowdown();
  if (dies && scene.kind == Scene::kNothing) death.prepare();
  rank.report.numbers[0] = now_us();
  dsc_result_t result = dsc_init_distributed(&options, &rank.world);
  Stage stage{rank};
  if (result == DSC_OK && scene.kind >= Scene::kCollective && scene.kind <= Scene::kMessages &&
      arena_open(&stage.arena, &stage.self, rank.world, kMostBytes) != 0)
    return 2;
  if (result == DSC_OK && scene.kind != Scene::kNothing) {
    result = dsc_barrier(rank.world, nullptr, nullptr);
    if (dies) death.prepare();
    rank.report.numbers[0] = now_us();
    result = play(scene, stage);
  }
  if (dies) {
    death.survived();
    kill(getpid(), SIGKILL);
  }
  while (result == DSC_OK) {
    rank.report.numbers[0] = now_us();
    result = dsc_barrier(rank.world, nullptr, nullptr);
    if (result == DSC_ERR_STATE) break;  // the world has ended
  }
  rank.record(0, result, rank.world);
  rank.reach(2);
  rank.await_order(1, 60'000);  // ranks that end now would count as dead for the others
  return rank.report.note[0] ? 3 : 0;
}

// Returns whether a text such as "missing: rank 0-2, 5; came: ..." lists the rank. It may list survivors too,
// which gave up before the rank that wrote the text arrived.
bool is_missing(const std::string& text, int rank) {
  const std::string words = "missing: rank ";
  const size_t begin = text.find(words);
  if (begin == std::string::npos) return false;
  const char* list = &text[begin + words.size()];
  for (int first = 0, last = 0, used = 0; std::sscanf(list, "%d%n", &first, &used) == 1; ++list) {
    list += used;
    last = first;
    if (std::sscanf(list, "-%d%n", &last, &used) == 1) list += used;
    if (first <= rank && rank <= last) return true;
    if (*list != ',') break;
  }
  return false;
}

// Describes what is wrong with the outcome of a survivor. Empty if nothing is wrong.
std::string judge(const Crew& crew, const Scene& scene, int victim, int rank) {
  const Outcome& outcome = crew.outcome(rank, 0);
  if (crew.status(rank) != 0) return format("rank %d ended with status %d", rank, crew.status(rank));
  const std::string text = outcome.text;
  const int pid = static_cast<int>(crew.pid(victim));
  bool named = text.find(format("rank %d (pid %d)", victim, pid)) != std::string::npos;
  bool fits = outcome.result == DSC_ERR_PEER_DEAD;
  if (scene.kind == Scene::kNothing) {  // the victim may not have arrived, or only its pid is known
    named = named || is_missing(text, victim) || text.find(format("pid %d ", pid)) != std::string::npos;
    fits = fits || outcome.result == DSC_ERR_TIMEOUT;
  }
  if (scene.kind == Scene::kFinalize && outcome.result == DSC_ERR_STATE) return "";
  return fits && named ? "" : describe(rank, outcome);
}

// Runs a scene in which one rank dies. Plays that run at the same time have different numbers.
class Play {
 public:
  Play(const Scene& scene, Death death, int number = 0)
      : scene_(scene),
        death_(std::move(death)),
        crew_(
            death_.size, [this](Rank& rank) { return perform(rank, scene_, death_); }, number) {}

  // Waits for the end. Describes what is wrong with the outcomes of the survivors. Empty if nothing is wrong.
  std::string judge_survivors() {
    std::string problem = await_survivors();
    crew_.order(1);
    if (problem.empty() && !crew_.await_end_of_all(30'000 * slowdown()))
      problem = "a rank does not end" + crew_.stacks();
    for (int rank = 0; rank < death_.size && problem.empty(); ++rank)
      if (rank != death_.victim) problem = judge(crew_, scene_, death_.victim, rank);
    if (problem.empty() && last_us_ > kAtOnceUs * slowdown())
      problem = format("the last survivor took %lld us", (long long)last_us_);
    return problem.empty() ? "" : problem + crew_.describe();
  }
  int64_t last_us() const { return last_us_; }

 private:
  std::string await_survivors() {
    if (!crew_.await_end(death_.victim, 30'000 * slowdown())) return "the rank does not die" + crew_.stacks();
    if (crew_.status(death_.victim) != 128 + SIGKILL) return "the victim ended otherwise";
    for (int rank = 0; rank < death_.size; ++rank) {
      if (rank == death_.victim) continue;
      if (!crew_.await_stage(rank, 2, 20'000 * slowdown())) return "a rank hangs" + crew_.stacks();
      const int64_t begin_us = std::max(crew_.ended_us(death_.victim), crew_.report(rank).numbers[0]);
      last_us_ = std::max(last_us_, crew_.outcome(rank, 0).end_us - begin_us);
    }
    return "";
  }

  const Scene& scene_;
  const Death death_;
  Crew crew_;
  int64_t last_us_ = 0;
};

template <typename T>
T* share(size_t count) {
  void* shared = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return static_cast<T*>(shared);
}

struct Point {
  size_t scene;
  int size;
  int victim;
  size_t place;
};

// Adds the places that a rank reaches in a scene.
void find_points(Point point, const Scene& scene, std::vector<Point>& points) {
  static uint8_t* const visited = share<uint8_t>(places.size());
  std::fill_n(visited, places.size(), uint8_t{0});
  const std::string problem =
      Play(scene, {point.size, point.victim, [] { mark_visits(places, visited); }}).judge_survivors();
  if (!problem.empty())
    fail_msg("%s, rank %d of %d, killed at the end: %s", scene.name.c_str(), point.victim, point.size,
             problem.c_str());
  for (point.place = 0; point.place < places.size(); ++point.place)
    if (visited[point.place]) points.push_back(point);
}

// A long run uses every place that any rank reaches in any scene. A short run uses half of all statements,
// each once. If the compiler has made several places of a statement, the run chooses one at random.
std::vector<Point> choose_points(const std::vector<Scene>& scenes, std::mt19937_64 random) {
  std::vector<Point> points;
  for (size_t i = 0; i < scenes.size(); ++i) {
    const int chosen = static_cast<int>(random() % 12);
    for (int size = 2; size <= kMostSize; ++size)
      for (int rank = 0; rank < size; ++rank)
        if (at_length() || (chosen % (kMostSize - 1) + 2 == size && chosen % size == rank))
          find_points({i, size, rank, 0}, scenes[i], points);
  }
  std::shuffle(points.begin(), points.end(), random);
  std::set<std::string> seen;
  if (!at_length() && !std::getenv("DSC_TEST_PLACE"))
    std::erase_if(points,
                  [&seen](const Point& point) { return !seen.insert(places[point.place].name).second; });
  // Which rank reaches which place depends on timing, so DSC_TEST_PLACE selects places by their name.
  if (const char* wanted = std::getenv("DSC_TEST_PLACE"))
    std::erase_if(points, [wanted](const Point& point) { return places[point.place].name != wanted; });
  else if (!at_length())
    points.resize((points.size() + 1) / 2);  // other runs choose the other half
  std::stable_partition(points.begin(), points.end(), [](const Point& point) { return point.scene == 0; });
  return points;
}

// A rank that dies before it has met the others is only missed when the time is over. Many of these trials
// therefore wait at the same time.
void kill_at(const std::vector<Scene>& scenes, const std::vector<Point>& points, Sweep& sweep) {
  bool more = sweep.next();
  while (more) {
    std::vector<std::unique_ptr<Play>> plays;
    std::vector<std::string> descriptions;
    const size_t at_once = points[static_cast<size_t>(sweep.trial())].scene == 0 ? 24 : 3;
    for (; more && plays.size() < at_once; more = sweep.next()) {
      const Point& point = points[static_cast<size_t>(sweep.trial())];
      const CodeLocation& place = places[point.place];
      const Scene& scene = scenes[point.scene];
      descriptions.push_back(sweep.replay() + format("%s, rank %d of %d at %s: ", scene.name.c_str(),
                                                     point.victim, point.size, place.name.c_str()));
      plays.push_back(std::make_unique<Play>(scene,
                                             Death{point.size, point.victim, [&place] { die_at(place); }},
                                             static_cast<int>(plays.size())));
    }
    std::string problem;
    for (size_t i = 0; i < plays.size() && problem.empty(); ++i) {
      problem = plays[i]->judge_survivors();
      if (!problem.empty()) problem = descriptions[i] + problem;
      sweep.add("last survivor out", plays[i]->last_us());
    }
    plays.clear();
    if (!problem.empty()) fail_msg("%s", problem.c_str());
  }
}

void test_killed_at_every_statement(void**) {
  if (places.empty()) {
    print_message("left out: no debug information, no objdump, or another machine\n");
    return;
  }
  const Traces traces;
  const std::vector<Scene> scenes = all_scenes();
  std::random_device device;
  const std::vector<Point> points = choose_points(scenes, std::mt19937_64(device()));
  const int count = static_cast<int>(points.size());
  const auto during_init =
      std::count_if(points.begin(), points.end(), [](const Point& p) { return p.scene == 0; });
  print_message("%zu scenes, %zu statements known; %d kills, %td of them during init\n", scenes.size(),
                places.size(), count, during_init);
  Sweep sweep("kills at statements", count, {.most = count});
  kill_at(scenes, points, sweep);
  const std::string left = traces.left();
  if (!left.empty()) fail_msg("left behind:%s", left.c_str());
  sweep.report();
  sweep.expect_median("last survivor out", kPromisedUs * slowdown());
}

// Kills a rank at each instruction that the engine executes in a barrier of two ranks, including the waiting.
void test_killed_at_every_instruction_of_a_barrier(void**) {
  const Scene barrier{"barrier", Scene::kCollective, {BARRIER, 0, 0, 0, 0, PLAIN, 0}, false};
  auto* const steps = share<int64_t>(1);
  if (!can_single_step()) {
    print_message("left out: another machine, or a sanitizer\n");
    return;
  }
  std::string problem =
      Play(barrier, {2, 0, [] { arm(INT64_MAX, 0); }, [&] { *steps = disarm(); }}).judge_survivors();
  if (!problem.empty()) fail_msg("%s", problem.c_str());
  print_message("%lld instructions\n", (long long)*steps);
  const int64_t most = std::min<int64_t>(*steps, 3000);
  assert_true(most > 200);
  Sweep sweep("kills at instructions of a barrier", at_length() ? static_cast<int>(most) : 150,
              {.least = 10, .most = static_cast<int>(most)});
  while (sweep.next()) {
    const int64_t step = at_length()
                             ? 1 + sweep.trial()
                             : 1 + static_cast<int64_t>(sweep.random()() % static_cast<uint64_t>(most));
    Play play(barrier, {2, static_cast<int>(step % 2), [&] { arm(step, SIGKILL); }});
    problem = play.judge_survivors();
    sweep.add("last survivor out", play.last_us());
    if (!problem.empty())
      fail_msg("%sat instruction %lld: %s", sweep.replay().c_str(), (long long)step, problem.c_str());
  }
  sweep.report();
  sweep.expect_median("last survivor out", kPromisedUs * slowdown());
}

}  // namespace

int main() {
  places =
      places_in({"impl/engine_host/", "impl/comm/", "impl/session/", "impl/control/", "impl/bootstrap/"});
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_killed_at_every_statement, end_everything),
      cmocka_unit_test_teardown(test_killed_at_every_instruction_of_a_barrier, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
