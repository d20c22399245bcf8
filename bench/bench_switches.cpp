// Counts the context switches of this library's operations, which run one after another without a pause.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iterator>

#include "libdsc_engine.hpp"
#include "meeting.hpp"

namespace {

constexpr int warm_ups = 3;
constexpr int fewest = 8, most = 5000;

enum Figure { voluntary, involuntary, elapsed_us, figures };
using Figures = std::array<double, figures>;

// Returns the switches of this thread so far. The kernel counts a switch as voluntary if the thread goes to
// sleep. It counts it as involuntary if another thread runs although this one could continue, which includes
// yields.
Figures read() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return {static_cast<double>(usage.ru_nvcsw), static_cast<double>(usage.ru_nivcsw),
          std::chrono::duration<double, std::micro>(time).count()};
}

Figures per_operation(bench::LibdscEngine& engine, const bench::Call& call, int repetitions) {
  const Figures before = read();
  for (int i = 0; i < repetitions; ++i) engine.call(call);
  Figures found = read();
  for (size_t i = 0; i < found.size(); ++i) found[i] = (found[i] - before[i]) / repetitions;
  return found;
}

void print(bench::Meeting& meeting, const bench::Job& job, dsc_comm_t* world, int repetitions) {
  char tuning[1024];
  size_t bytes = 0;
  bench::ok(dsc_comm_tuning(world, tuning, sizeof tuning, &bytes));
  std::printf("{\"repetitions\": %d, \"tuning\": \"%s\"", repetitions, tuning);
  constexpr const char* names[] = {"voluntary", "involuntary", "elapsed_us"};
  for (int figure = 0; figure < figures; ++figure) {
    std::printf(", \"%s\": [", names[figure]);
    for (int rank = 0; rank < job.ranks; ++rank)
      std::printf("%s%.4f", rank ? ", " : "", meeting.result(figure, rank));
    std::printf("]");
  }
  std::printf("}\n");
  std::fflush(stdout);
}

void body(const bench::Job& job) {
  bench::LibdscEngine engine(job);
  bench::Meeting meeting(job.meeting_path, job.ranks);
  const bench::Shape largest(job.op, job.bytes, bench::root, job.ranks);
  const bench::Shape own(job.op, job.bytes, engine.rank(), job.ranks);
  const size_t elements = std::max({largest.in, largest.out, size_t{1}});
  float *in = engine.allocate(elements), *out = engine.allocate(elements);
  std::fill_n(in, elements, 0.0f);  // sums in place stay zero
  std::fill_n(out, elements, 0.0f);
  const bench::Call call{job.op, 0, engine.rank(), job.ranks, in, own.in_place ? in : out, own.count};
  const Figures first = per_operation(engine, call, warm_ups);
  const double budget_us = job.quick ? 1e4 : 2e5;
  if (call.rank == 0)
    meeting.set_last_repetition(
        static_cast<int>(std::clamp<double>(budget_us / first[elapsed_us], fewest, most)));
  meeting.wait();
  const Figures found = per_operation(engine, call, meeting.last_repetition());
  for (int figure = 0; figure < figures; ++figure)
    meeting.result(figure, call.rank) = found[static_cast<size_t>(figure)];
  meeting.wait();
  if (call.rank == 0) print(meeting, job, engine.world(), meeting.last_repetition());
  engine.release(in);
  engine.release(out);
  bench::ok(dsc_finalize());
}

}  // namespace

int main(int argc, char** argv) { return bench::run_driver(argc, argv, body); }
