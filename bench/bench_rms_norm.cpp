// Measures dsc_all_reduce_rms_norm(), and for comparison an all-reduce followed by a separate pass for the
// norm: dscrun -n RANKS bench_rms_norm [ROUNDS HIDDEN]. All work in place and take turns. Rank 0 prints
// microseconds of the slowest rank as medians of all rounds, and the median of the ratios in each round.
#include <dsc/dsc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "tensor_parallel/rms_norm_rows.hpp"

namespace {

constexpr double kEpsilon = 1e-5;

void ok(dsc_result_t result) {
  if (result >= 0) return;
  std::fprintf(stderr, "%s\n", dsc_last_error_message());
  std::exit(1);
}

dsc_comm_t* world() {
  dsc_comm_t* comm = nullptr;
  ok(dsc_world(&comm));
  return comm;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Returns microseconds per call on the slowest rank.
double time_of(size_t calls, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  ok(dsc_barrier(world(), nullptr, nullptr));
  const auto begin = Clock::now();
  for (size_t call = 0; call < calls; ++call) run();
  double time = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  ok(dsc_all_reduce(world(), &time, &time, 1, DSC_DTYPE_F64, DSC_OP_MAX, nullptr, nullptr));
  return time / static_cast<double>(calls);
}

// Returns elements of a type: small numbers of either sign.
std::vector<std::byte> numbers(size_t count, dsc_dtype_t dtype, uint64_t seed) {
  const size_t bytes = dtype == DSC_DTYPE_BF16 ? 2 : 4;
  std::vector<std::byte> all(count * bytes);
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const float value = static_cast<float>(seed >> 60) / 4 - 2;
    std::memcpy(&all[i * bytes], reinterpret_cast<const char*>(&value) + 4 - bytes, bytes);
  }
  return all;
}

struct Problem {
  Problem(size_t tokens, size_t hidden, dsc_dtype_t dtype)
      : tokens(tokens),
        count(tokens * hidden),
        weight(numbers(hidden, dtype, 3)),
        norm{dtype, hidden, kEpsilon, weight.data()} {
    fill();
  }

  void fill() {
    input = numbers(count, norm.dtype, 1);
    residual = numbers(count, norm.dtype, 2);
  }

  void fused() {
    ok(dsc_all_reduce_rms_norm(world(), input.data(), residual.data(), weight.data(), tokens, norm.hidden,
                               norm.dtype, kEpsilon, residual.data(), input.data()));
  }
  void all_reduce() {
    ok(dsc_all_reduce(world(), input.data(), input.data(), count, norm.dtype, DSC_OP_SUM, nullptr, nullptr));
  }
  void normalize() {
    const size_t bytes = input.size() / tokens;
    for (size_t at = 0; at < input.size(); at += bytes)
      dsc::normalize_row(norm, &input[at], &residual[at], &residual[at], &input[at]);
  }

  size_t tokens, count;
  std::vector<std::byte> input, residual, weight;
  dsc::RmsNorm norm;
};

void measure(size_t tokens, size_t hidden, dsc_dtype_t dtype, size_t rounds) {
  int32_t rank = 0, ranks = 0;
  ok(dsc_comm_rank(world(), &rank));
  ok(dsc_comm_size(world(), &ranks));
  Problem problem(tokens, hidden, dtype);
  const size_t calls = std::max<size_t>(1, 64 / tokens);
  std::vector<double> fused, two, sums, ratios;
  for (size_t round = 0; round < rounds + 2; ++round) {  // the first two rounds warm up
    const double sum = time_of(calls, [&] { problem.all_reduce(); });
    problem.fill();  // otherwise the sums would grow without limit
    const double one = time_of(calls, [&] { problem.fused(); });
    const double both = time_of(calls, [&] {
      problem.all_reduce();
      problem.normalize();
    });
    if (round < 2) continue;
    sums.push_back(sum);
    fused.push_back(one);
    two.push_back(both);
    ratios.push_back(both / one);
  }
  if (rank == 0)
    std::printf(
        "%-5s %4zu tokens, %d ranks: fused %.1f us, apart %.1f us (%.2fx), all_reduce alone %.1f us\n",
        dtype == DSC_DTYPE_BF16 ? "bf16" : "f32", tokens, ranks, median(fused), median(two), median(ratios),
        median(sums));
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, size_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  dsc_comm_t* comm = nullptr;
  ok(dsc_init_distributed(nullptr, &comm));
  for (const dsc_dtype_t dtype : {DSC_DTYPE_F32, DSC_DTYPE_BF16})
    for (const size_t tokens : {1, 16, 256, 2048}) measure(tokens, number(2, 4096), dtype, number(1, 41));
  ok(dsc_finalize());
  return 0;
}
