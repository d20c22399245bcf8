#include "harness.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>

#include "meeting.hpp"

namespace bench {
namespace {

constexpr int warm_ups = 3;
constexpr int fewest_repetitions = 12;
constexpr double budget_us = 2e6;  // limit of all timed calls of a run; slow engines run fewer calls

int repetitions(size_t bytes, bool quick) {
  if (bytes <= (16u << 10)) return quick ? 50 : 1500;
  if (bytes <= (1u << 20)) return quick ? 20 : 150;
  return quick ? 3 : 15;
}

double now_us() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

// The buffers of one job on this rank. All ranks allocate as much as the root, because in some engines all
// ranks must allocate together.
class Buffers {
 public:
  Buffers(Engine& engine, const Job& job)
      : shape(job.op, job.bytes, engine.rank(), job.ranks), engine_(engine) {
    const Shape largest(job.op, job.bytes, root, job.ranks);
    in_ = allocate(largest.in);
    if (!shape.in_place) out_ = allocate(largest.out);
  }
  ~Buffers() {
    if (out_) engine_.release(out_);
    engine_.release(in_);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  float* in() const { return shape.in == 0 ? nullptr : in_; }
  float* out() const { return shape.out == 0 ? nullptr : shape.in_place ? in_ : out_; }

  // Writes to all buffers of this rank, so that its core has them, and no result is left from the call
  // before.
  void refill(int rank) const {
    if (!shape.in_place) std::fill_n(out_, shape.out, spoiled);
    fill(in_, shape.in, rank);
  }

  const Shape shape;

 private:
  static constexpr float spoiled = -1.0f;

  float* allocate(size_t elements) {
    float* buffer = engine_.allocate(elements);
    std::fill_n(buffer, elements, spoiled);  // touches every page
    return buffer;
  }
  Engine& engine_;
  float* in_ = nullptr;
  float* out_ = nullptr;
};

void check(const Engine& engine, const Call& call, size_t out_count) {
  if (call.op == Op::barrier) return;
  for (size_t i = 0; i < out_count; ++i) {
    const float expected = engine.expected(call, i);
    if (call.out[i] == expected) continue;
    char text[160];
    std::snprintf(text, sizeof text, "rank %d of %d, variant %d: element %zu is %g, expected %g", call.rank,
                  call.ranks, call.variant, i, static_cast<double>(call.out[i]),
                  static_cast<double>(expected));
    throw std::runtime_error(text);
  }
}

double median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// One repetition: refills the buffers, starts on all ranks at the same time, times the call, and waits for
// all ranks before the next refill.
double time_once(Engine& engine, Meeting& meeting, const Buffers& buffers, const Call& call) {
  buffers.refill(call.rank);
  meeting.wait();
  const double start = now_us();
  engine.call(call);
  const double returned = now_us();
  meeting.wait();
  return (engine.ends_together() ? now_us() : returned) - start;
}

// Times one variant, and returns the time of each repetition on this rank.
std::vector<double> time_variant(Engine& engine, Meeting& meeting, const Buffers& buffers, const Call& call,
                                 int repetitions, double limit_us) {
  if (call.rank == 0) meeting.set_last_repetition(repetitions - 1);
  std::vector<double> times;
  double spent_us = 0;
  for (int repetition = -warm_ups; repetition < 0 || repetition <= meeting.last_repetition(); ++repetition) {
    if (call.rank == 0 && repetition + 1 >= fewest_repetitions && spent_us > limit_us &&
        repetition < meeting.last_repetition())
      meeting.set_last_repetition(repetition);
    const double elapsed = time_once(engine, meeting, buffers, call);
    spent_us += elapsed;
    if (repetition >= 0) times.push_back(elapsed);
    if (repetition == -1) check(engine, call, buffers.shape.out);
  }
  meeting.wait();  // rank 0 may change the last repetition only when all ranks have read it
  return times;
}

void print_result(Meeting& meeting, const Job& job, const std::vector<std::string>& variants,
                  size_t repeated) {
  const double messages = job.op == Op::send_recv ? 2 : 1;  // a round trip has two messages
  double best = 0;
  std::string each;
  for (size_t v = 0; v < variants.size(); ++v) {
    double slowest = 0;
    for (int r = 0; r < job.ranks; ++r) slowest = std::max(slowest, meeting.result(static_cast<int>(v), r));
    best = v == 0 ? slowest : std::min(best, slowest);
    char text[96];
    std::snprintf(text, sizeof text, "%s\"%s\": %.3f", v ? ", " : "", variants[v].c_str(),
                  slowest / messages);
    each += text;
  }
  std::printf(
      "{\"op\": \"%s\", \"engine\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"median_us\": %.3f, "
      "\"repetitions\": %zu, \"variants\": {%s}}\n",
      job.op_name.c_str(), job.engine.c_str(), job.ranks, job.bytes, best / messages, repeated, each.c_str());
  std::fflush(stdout);
}

}  // namespace

float* Engine::allocate(size_t count) {
  const size_t page = 4096;
  void* memory = std::aligned_alloc(page, (count * sizeof(float) + page - 1) / page * page);
  if (!memory) throw std::bad_alloc();
  return static_cast<float*>(memory);
}

void Engine::release(float* buffer) { std::free(buffer); }

Job parse_job(int argc, char** argv) {
  if (argc != 7) throw std::invalid_argument("expected ENGINE OP BYTES RANKS MEETING_FILE full|quick");
  Job job{argv[1], argv[2], parse_op(argv[2]), std::stoul(argv[3]), std::stoi(argv[4]), argv[5], false};
  job.quick = std::strcmp(argv[6], "quick") == 0;
  if (job.op == Op::send_recv && job.ranks % 2) throw std::invalid_argument("send_recv needs pairs of ranks");
  return job;
}

int rank_from_environment() {
  const char* text = std::getenv("RANK");
  if (!text) throw std::invalid_argument("expected RANK in the environment");
  return std::stoi(text);
}

void measure(Engine& engine, const Job& job) {
  Meeting meeting(job.meeting_path, job.ranks);
  const Buffers buffers(engine, job);
  const std::vector<std::string> variants = engine.variants(job.op);
  Call call{job.op, 0, engine.rank(), job.ranks, buffers.in(), buffers.out(), buffers.shape.count};
  engine.prepare(call);

  const double limit_us = budget_us / static_cast<double>(variants.size());
  size_t repeated = 0;
  // One after another, because a variant leaves the buffers in the caches of other cores than the next one
  // does.
  for (; call.variant < static_cast<int>(variants.size()); ++call.variant) {
    std::vector<double> times =
        time_variant(engine, meeting, buffers, call, repetitions(job.bytes, job.quick), limit_us);
    repeated = times.size();
    meeting.result(call.variant, call.rank) = median(times);
  }
  meeting.wait();
  if (call.rank == 0) print_result(meeting, job, variants, repeated);
  meeting.wait();
}

int run_driver(int argc, char** argv, void (*body)(const Job& job)) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank survives its launcher
  try {
    body(parse_job(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    std::fflush(stderr);
    _exit(1);  // static destructors of an engine may wait for ranks that are gone
  }
}

}  // namespace bench
