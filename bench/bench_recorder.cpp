// Measures the cost of the flight recorder: a 4-byte all-reduce in two worlds of one process, with and
// without it, in turn. Prints nanoseconds per operation: the medians over all rounds, and the median of the
// differences in each round.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dsc/dsc.h"

namespace {

constexpr int kOperations = 20'000;  // in one turn

enum Mode { kOff, kOn, kModes };

void check(dsc_result_t result) {
  if (result < 0) throw std::runtime_error(dsc_last_error_message());
}

double now_ns() { return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch().count()); }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Bench {
  int ranks;
  int rounds;
  pthread_barrier_t turn;
  std::vector<double> times[kModes];  // times of rank 0, one per round
};

dsc_comm_t* join(Mode mode, int rank, int ranks) {
  dsc_init_options_t options;
  check(dsc_init_options_init(&options, sizeof options));
  const std::string job = "bench-recorder-" + std::to_string(ranks) + (mode == kOn ? "-on" : "-off");
  options.job_id = job.c_str();
  options.rank = rank;
  options.world_size = ranks;
  options.rank_per_thread = 1;
  dsc_comm_t* world = nullptr;
  check(dsc_init_distributed(&options, &world));
  return world;
}

double run_turn(dsc_comm_t* world) {
  float value = 0;
  const double start = now_ns();
  for (int i = 0; i < kOperations; ++i)
    check(dsc_all_reduce(world, &value, &value, 1, DSC_DTYPE_F32, DSC_OP_SUM, nullptr, nullptr));
  return (now_ns() - start) / kOperations;
}

// While the ranks of one world are measured, the threads of the other one sleep. The order changes from round
// to round.
void run_rank(Bench& bench, dsc_comm_t* world, Mode mode, int rank) {
  run_turn(world);
  for (int round = 0; round < bench.rounds; ++round)
    for (int turn = 0; turn < kModes; ++turn) {
      pthread_barrier_wait(&bench.turn);
      if ((turn + round) % kModes != mode) continue;
      const double time = run_turn(world);
      if (rank == 0) bench.times[mode].push_back(time);
    }
  pthread_barrier_wait(&bench.turn);
  check(dsc_finalize());
}

// Each world reads the environment when it is made, so the worlds are made one after another.
void start(Bench& bench, Mode mode, const char* entries, std::vector<std::thread>& threads) {
  setenv("DSC_TRACE_BUFFER_SIZE", entries, 1);
  pthread_barrier_t made;
  pthread_barrier_init(&made, nullptr, static_cast<unsigned>(bench.ranks) + 1);
  for (int rank = 0; rank < bench.ranks; ++rank)
    threads.emplace_back([&bench, &made, mode, rank] {
      dsc_comm_t* const world = join(mode, rank, bench.ranks);
      pthread_barrier_wait(&made);
      run_rank(bench, world, mode, rank);
    });
  pthread_barrier_wait(&made);
  pthread_barrier_destroy(&made);
}

void measure(int ranks, int rounds) {
  Bench bench{ranks, rounds, {}, {}};
  pthread_barrier_init(&bench.turn, nullptr, static_cast<unsigned>(ranks) * kModes);
  std::vector<std::thread> threads;
  start(bench, kOff, "0", threads);
  start(bench, kOn, "2000", threads);
  for (std::thread& thread : threads) thread.join();
  pthread_barrier_destroy(&bench.turn);
  std::vector<double> differences;
  for (size_t i = 0; i < bench.times[kOn].size(); ++i)
    differences.push_back(bench.times[kOn][i] - bench.times[kOff][i]);
  std::printf("%5d  %8.1f  %8.1f  %8.1f\n", ranks, median(bench.times[kOff]), median(bench.times[kOn]),
              median(differences));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 101;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: %s [ROUNDS]\n", argv[0]);
    return 2;
  }
  std::printf("ranks   off, ns    on, ns  added, ns\n");
  for (const int ranks : {1, 2}) measure(ranks, rounds);
  return 0;
}
