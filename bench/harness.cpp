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

constexpr int period = 7;  // small whole numbers: every sum is exact in f32, in any order
constexpr int warm_ups = 3;
constexpr int fewest_repetitions = 12;
constexpr double budget_us = 2e6;  // of timed calls, per variant; an engine this slow is repeated less often

struct OpName {
  const char* name;
  Op op;
};
constexpr OpName op_names[] = {{"all_reduce", Op::all_reduce}, {"broadcast", Op::broadcast},
                               {"all_gather", Op::all_gather}, {"reduce_scatter", Op::reduce_scatter},
                               {"barrier", Op::barrier},       {"send_recv", Op::send_recv}};

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

float fill_value(int rank, size_t i) { return static_cast<float>(i % period) + static_cast<float>(rank); }

// Copies a small tile again and again: a plain loop with i % 7 would take longer than what is measured.
void fill(float* buffer, size_t count, int rank) {
  float tile[period * 256];
  for (size_t i = 0; i < std::size(tile); ++i) tile[i] = fill_value(rank, i);
  for (size_t i = 0; i < count; i += std::size(tile))
    std::memcpy(buffer + i, tile, std::min(std::size(tile), count - i) * sizeof(float));
}

// The buffers of one job, of the size that the operation needs on this rank.
class Buffers {
 public:
  Buffers(Engine& engine, const Job& job) : engine_(engine) {
    const size_t elements = std::max<size_t>(1, job.bytes / sizeof(float));
    const size_t ranks = static_cast<size_t>(job.ranks);
    const size_t part = std::max<size_t>(1, elements / ranks);
    const bool gather = job.op == Op::all_gather, scatter = job.op == Op::reduce_scatter;
    count = gather || scatter ? part : elements;
    in_count = scatter ? part * ranks : count;
    out_count = gather ? part * ranks : count;
    in = allocate(in_count);
    const bool in_place = job.op == Op::all_reduce || job.op == Op::broadcast || job.op == Op::barrier;
    out = in_place ? in : allocate(out_count);
  }
  ~Buffers() {
    if (out != in) engine_.release(out);
    engine_.release(in);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  size_t count, in_count, out_count;
  float *in, *out;

 private:
  float* allocate(size_t elements) {
    float* buffer = engine_.allocate(elements);
    std::fill_n(buffer, elements, -1.0f);  // touches every page, and no result looks right by accident
    return buffer;
  }
  Engine& engine_;
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

// One repetition: refill, start together, time the call, and let everyone finish before the next refill.
double time_once(Engine& engine, Meeting& meeting, const Buffers& buffers, const Call& call) {
  fill(buffers.in, buffers.in_count, call.rank);
  meeting.wait();
  const double start = now_us();
  engine.call(call);
  const double elapsed = now_us() - start;
  meeting.wait();
  return elapsed;
}

void print_result(Meeting& meeting, const Job& job, const std::vector<std::string>& variants,
                  size_t repeated) {
  const double messages = job.op == Op::send_recv ? 2 : 1;  // a round trip is two
  double best = 0;
  std::string each;
  for (size_t v = 0; v < variants.size(); ++v) {
    double slowest = 0;
    for (int r = 0; r < job.ranks; ++r)
      slowest = std::max(slowest, meeting.median_us(static_cast<int>(v), r));
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

float Engine::expected(const Call& call, size_t i) const {
  const auto sum = [&](size_t index) {
    return static_cast<float>(call.ranks) * fill_value(0, index) +
           static_cast<float>(call.ranks * (call.ranks - 1) / 2);
  };
  const auto rank = static_cast<size_t>(call.rank);
  switch (call.op) {
    case Op::all_reduce:
      return sum(i);
    case Op::broadcast:
      return fill_value(0, i);
    case Op::all_gather:
      return fill_value(static_cast<int>(i / call.count), i % call.count);
    case Op::reduce_scatter:
      return sum(rank * call.count + i);
    case Op::send_recv:
      return fill_value(call.rank & ~1, i);
    case Op::barrier:
      break;
  }
  return 0;
}

Job parse_job(int argc, char** argv) {
  if (argc != 7) throw std::invalid_argument("expected ENGINE OP BYTES RANKS MEETING_FILE full|quick");
  const auto* known = std::find_if(std::begin(op_names), std::end(op_names), [&](const OpName& entry) {
    return std::strcmp(entry.name, argv[2]) == 0;
  });
  if (known == std::end(op_names)) throw std::invalid_argument(std::string("unknown operation ") + argv[2]);
  Job job{argv[1], argv[2], known->op, std::stoul(argv[3]), std::stoi(argv[4]), argv[5], false};
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
  Call call{job.op, 0, engine.rank(), job.ranks, buffers.in, buffers.out, buffers.count};
  if (call.rank == 0) meeting.set_last_repetition(repetitions(job.bytes, job.quick) - 1);
  engine.prepare(call);

  std::vector<std::vector<double>> times(variants.size());
  double spent_us = 0;
  for (int repetition = -warm_ups; repetition < 0 || repetition <= meeting.last_repetition(); ++repetition) {
    if (call.rank == 0 && repetition + 1 >= fewest_repetitions &&
        spent_us > budget_us * static_cast<double>(variants.size()) && repetition < meeting.last_repetition())
      meeting.set_last_repetition(repetition);
    for (call.variant = 0; call.variant < static_cast<int>(variants.size()); ++call.variant) {
      const double elapsed = time_once(engine, meeting, buffers, call);
      spent_us += elapsed;
      if (repetition >= 0) times[static_cast<size_t>(call.variant)].push_back(elapsed);
      if (repetition == 0) check(engine, call, buffers.out_count);
    }
  }
  const size_t repeated = times[0].size();
  for (int v = 0; v < static_cast<int>(variants.size()); ++v)
    meeting.median_us(v, call.rank) = median(times[static_cast<size_t>(v)]);
  meeting.wait();
  if (call.rank == 0) print_result(meeting, job, variants, repeated);
  meeting.wait();
}

int run_driver(int argc, char** argv, void (*body)(const Job& job)) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives its launcher
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
