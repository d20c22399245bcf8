// Measures how fast one core compresses gradients, without an engine: bench_compress [ROUNDS]. Prints GB of
// f32 numbers per second, and the ratio to memcpy of the same number of bytes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "compress/blocks.hpp"
#include "compress/onebit.hpp"
#include "compress/powersgd.hpp"
#include "compress/scaled_fp8.hpp"
#include "compress/topk.hpp"
#include "dsc/types.h"

namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kBlock = 2048;
constexpr size_t kMostRank = 32;

struct Kernel {
  const char* name;
  std::function<void()> run;
};

// The arrays of one size. Kernels that change their input leave values in it that may occur in training.
class Bench {
 public:
  explicit Bench(size_t bytes)
      : count_(bytes / sizeof(float)),
        columns_(count_ / 1024 >= 4096 ? 4096 : 1024),
        rows_(count_ / columns_),
        values_(count_),
        other_(count_),
        bits_(count_ / 8),
        packed_(count_),
        scales_(count_ / kBlock),
        indices_(count_ / 100),
        thin_(std::max(rows_, columns_) * kMostRank),
        thin_result_(thin_.size()) {
    dsc::fill_normal(1, values_);
    dsc::fill_normal(2, thin_);
    std::ranges::fill(packed_, uint8_t{0x35});
  }

  void measure(int rounds) {
    const double memcpy_seconds =
        seconds([&] { std::memcpy(other_.data(), values_.data(), count_ * sizeof(float)); }, rounds);
    print("memcpy", memcpy_seconds, memcpy_seconds);
    for (const Kernel& kernel : element_kernels())
      print(kernel.name, seconds(kernel.run, rounds), memcpy_seconds);
    for (const size_t rank : {1, 2, 4, 32}) {
      std::printf("  rank %zu\n", rank);
      for (const Kernel& kernel : matrix_kernels(rank))
        print(kernel.name, seconds(kernel.run, rounds), memcpy_seconds);
    }
  }

 private:
  std::vector<Kernel> element_kernels() {
    return {
        {"compress_signs", [&] { dsc::compress_signs(values_, other_, bits_); }},
        {"add_signs", [&] { dsc::add_signs(bits_, 0.5f, other_); }},
        {"expand_signs", [&] { dsc::expand_signs(bits_, 0.5f, other_); }},
        {"select_top_k of 1 %", [&] { dsc::select_top_k(values_, indices_); }},
        {"quantise_blocks, 8 bits", [&] { dsc::quantise_blocks(8, kBlock, values_, packed_, scales_); }},
        {"quantise_blocks, 4 bits", [&] { dsc::quantise_blocks(4, kBlock, values_, packed_, scales_); }},
        {"dequantise_blocks, 8 bits",
         [&] { dsc::dequantise_blocks(8, kBlock, packed_, scales_, other_, false); }},
        {"dequantise_blocks, 4 bits, add",
         [&] { dsc::dequantise_blocks(4, kBlock, packed_, scales_, other_, true); }},
        {"max_magnitude", [&] { scales_[0] = dsc::max_magnitude(values_); }},
        {"to_fp8, e4m3", [&] { dsc::to_fp8(DSC_DTYPE_F8E4M3, values_, 64, packed_); }},
        {"to_fp8, e5m2", [&] { dsc::to_fp8(DSC_DTYPE_F8E5M2, values_, 64, packed_); }},
        {"from_fp8, e4m3, add", [&] { dsc::from_fp8(DSC_DTYPE_F8E4M3, packed_, 1.0f / 64, other_, true); }},
        {"from_fp8, e5m2, add", [&] { dsc::from_fp8(DSC_DTYPE_F8E5M2, packed_, 1.0f / 64, other_, true); }},
    };
  }

  std::vector<Kernel> matrix_kernels(size_t rank) {
    const float* const thin = thin_.data();
    float* const result = thin_result_.data();
    return {
        {"multiply", [=, this] { dsc::multiply(values_.data(), thin, result, rows_, columns_, rank); }},
        {"multiply_transposed",
         [=, this] { dsc::multiply_transposed(values_.data(), thin, result, rows_, columns_, rank); }},
        {"approximate", [=, this] { dsc::approximate(thin, thin, other_.data(), rows_, columns_, rank); }},
        {"orthogonalise the thin one", [=, this] { dsc::orthogonalise(result, rows_, rank, 0); }},
    };
  }

  // Returns the median of the rounds, after one round for warming up.
  template <class Run>
  double seconds(const Run& run, int rounds) const {
    using Clock = std::chrono::steady_clock;
    const size_t repeats = 1 + 32 * kMiB / (count_ * sizeof(float));
    run();
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
      const auto start = Clock::now();
      for (size_t i = 0; i < repeats; ++i) run();
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count() /
                      static_cast<double>(repeats));
    }
    std::ranges::nth_element(times, times.begin() + rounds / 2);
    return times[static_cast<size_t>(rounds / 2)];
  }

  void print(const char* name, double seconds, double memcpy_seconds) const {
    std::printf("  %-32s %8.1f  %5.2f\n", name, static_cast<double>(count_ * sizeof(float)) / seconds / 1e9,
                memcpy_seconds / seconds);
    std::fflush(stdout);
  }

  size_t count_, columns_, rows_;
  std::vector<float> values_, other_;
  std::vector<uint8_t> bits_, packed_;
  std::vector<float> scales_;
  std::vector<uint32_t> indices_;
  std::vector<float> thin_, thin_result_;
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  if (rounds < 1) return 2;
  for (const size_t bytes : {4 * kMiB, 64 * kMiB}) {
    std::printf("%zu MiB: GB/s of f32 numbers, speed over memcpy's\n", bytes / kMiB);
    Bench(bytes).measure(rounds);
  }
  return 0;
}
