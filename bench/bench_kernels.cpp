// Measures how fast one core sums arrays of each element type, without an engine, and the cost of reporting
// NaN and infinity: bench_kernels [ROUNDS]. Prints a table with the ratio to f32 for the same number of
// bytes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "dtype/reduce.hpp"

namespace {

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr size_t kSizes[] = {16 * kKiB, 64 * kKiB, 256 * kKiB, 1 * kMiB, 4 * kMiB, 25 * kMiB, 100 * kMiB};
constexpr int32_t kTypes[] = {DSC_DTYPE_F32, DSC_DTYPE_F16,    DSC_DTYPE_BF16,
                              DSC_DTYPE_F64, DSC_DTYPE_F8E4M3, DSC_DTYPE_F8E5M2};
constexpr size_t kChunkBytes = 512 * kKiB;     // the engine also cuts large arrays into such chunks
constexpr size_t kStreamingBytes = 32 * kMiB;  // total from which on the engine's stores bypass the caches
constexpr int kMaxSources = 4;

struct FreeArray {
  void operator()(std::byte* array) const { std::free(array); }
};
using Array = std::unique_ptr<std::byte, FreeArray>;

// Returns an array of zeros. Sums in place stay zero, and other numbers take the same time.
Array make_array() {
  Array array(static_cast<std::byte*>(std::aligned_alloc(2 * kMiB, 100 * kMiB)));
  if (!array) std::abort();
  std::memset(array.get(), 0, 100 * kMiB);
  return array;
}

struct Shape {
  size_t bytes;  // size of one array
  int sources;
  bool in_place;  // written into every source; otherwise into one additional array

  int destinations() const { return in_place ? sources : 1; }
  double moved() const { return static_cast<double>(bytes) * (sources + destinations()); }
};

void sum(const Shape& shape, int32_t dtype, const std::vector<Array>& arrays, dsc::NonFinite* report) {
  dsc::ReduceSpec spec{dtype, DSC_OP_SUM};
  if (shape.bytes * static_cast<size_t>(shape.destinations()) >= kStreamingBytes)
    spec.streamed = dsc::kAllDestinations;
  for (size_t at = 0; at < shape.bytes; at += kChunkBytes) {
    void* parts[kMaxSources + 1];
    for (int i = 0; i <= kMaxSources; ++i) parts[i] = arrays[static_cast<size_t>(i)].get() + at;
    const size_t bytes = std::min(kChunkBytes, shape.bytes - at);
    void** dsts = shape.in_place ? parts : parts + kMaxSources;
    dsc::reduce(spec, parts, shape.sources, dsts, shape.destinations(), bytes / dsc::dtype_bytes(dtype),
                report);
  }
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One variant, which is timed in turn with the others.
struct Entry {
  int32_t dtype;
  bool reports;
  std::vector<double> seconds;

  void time(const Shape& shape, const std::vector<Array>& arrays) {
    dsc::NonFinite report;
    const auto repeats = static_cast<int>(1 + 8 * kMiB / (shape.bytes * static_cast<size_t>(shape.sources)));
    sum(shape, dtype, arrays, nullptr);  // brings the arrays into the caches as a caller would
    const double start = now_s();
    for (int i = 0; i < repeats; ++i) sum(shape, dtype, arrays, reports ? &report : nullptr);
    seconds.push_back((now_s() - start) / repeats);
    if (report.count != 0) std::abort();
  }
};

void print_shape(const Shape& shape) {
  const bool large = shape.bytes >= kMiB;
  std::printf("%7d  %-6s %4zu %s", shape.sources, shape.in_place ? "all" : "one",
              shape.bytes / (large ? kMiB : kKiB), large ? "MiB" : "KiB");
}

void measure(const Shape& shape, const std::vector<Array>& arrays, int rounds) {
  std::vector<Entry> entries;
  for (const int32_t dtype : kTypes)
    for (const bool reports : {false, true})
      if (dsc::op_supports(DSC_OP_SUM, dtype)) entries.push_back({dtype, reports, {}});
  for (int round = 0; round < rounds; ++round)
    for (Entry& entry : entries) entry.time(shape, arrays);
  print_shape(shape);
  const double f32 = median(entries[0].seconds);
  for (size_t i = 0; i < entries.size(); i += 2) {
    const double plain = median(entries[i].seconds), reporting = median(entries[i + 1].seconds);
    std::printf("  %6.1f %4.2f %4.2f", shape.moved() / plain / 1e9, f32 / plain, reporting / plain);
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  if (rounds < 1) return 2;
  std::vector<Array> arrays;
  for (int i = 0; i <= kMaxSources; ++i) arrays.push_back(make_array());
  std::printf(
      "sum; per type: GB/s read and written, bytes per second over f32's, time with report over without\n");
  std::printf("sources  into       bytes");
  for (const int32_t dtype : kTypes)
    if (dsc::op_supports(DSC_OP_SUM, dtype)) std::printf("  %17s", dsc::dtype_name(dtype));
  std::printf("\n");
  for (const int sources : {2, 4})
    for (const bool in_place : {false, true})
      for (const size_t bytes : kSizes) measure({bytes, sources, in_place}, arrays, rounds);
  return 0;
}
