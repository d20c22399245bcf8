// What the code above the engines does with memory: arithmetic, order and numbers, by the same calls for each
// kind of memory.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "dtype/dtype.hpp"
#include "memory/space.hpp"
#include "suite.hpp"

extern "C" {
#include "cmocka_c.h"  // included last because it defines a macro fail()
}

namespace suite {
namespace {

using dsc::Elements;
using dsc::Memory;
using dsc::Norm;
using dsc::Space;
using dsc::TensorPart;

// The memory of a world, and a stream for work on it. Numbers are small integers, which all types represent
// exactly.
class Bench {
 public:
  explicit Bench(dsc::Comm& world)
      : space(Space::of(world, world.device() >= 0)), stream(space->make_stream()) {}

  Memory take(size_t count, int32_t dtype) {
    return space->take(count * dsc::dtype_bytes(dtype), stream.get());
  }
  // Returns the numbers as elements of a type.
  Memory elements(const std::vector<float>& numbers, int32_t dtype) {
    const auto plain = space->stage(numbers.size() * sizeof(float));
    std::memcpy(plain.get(), numbers.data(), numbers.size() * sizeof(float));
    Memory wide = take(numbers.size(), DSC_DTYPE_F32);
    space->copy({wide.get(), DSC_DTYPE_F32, plain.get(), DSC_DTYPE_F32, numbers.size()}, stream.get());
    space->await_stream(stream.get(), "the numbers");  // `plain` is freed at the end of this function
    if (dtype == DSC_DTYPE_F32) return wide;
    Memory narrow = take(numbers.size(), dtype);
    space->copy({narrow.get(), dtype, wide.get(), DSC_DTYPE_F32, numbers.size()}, stream.get());
    return narrow;
  }
  std::vector<float> numbers(const void* elements, int32_t dtype, size_t count) {
    const Memory wide = take(count, DSC_DTYPE_F32);
    space->copy({wide.get(), DSC_DTYPE_F32, elements, dtype, count}, stream.get());
    std::vector<float> found(count);
    space->read(found.data(), wide.get(), count * sizeof(float), stream.get(), "the numbers");
    return found;
  }

  const std::unique_ptr<Space> space;
  const std::shared_ptr<void> stream;
};

std::vector<float> times(std::vector<float> numbers, float factor) {
  for (float& number : numbers) number *= factor;
  return numbers;
}

constexpr int32_t kHalves[] = {DSC_DTYPE_F16, DSC_DTYPE_BF16};

int compute(rank_t* self, dsc::Comm& world) {
  Bench bench(world);
  Space& space = *bench.space;
  void* const stream = bench.stream.get();
  std::vector<float> numbers(1000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 17) - 8;
  const size_t count = numbers.size();
  for (const int32_t dtype : {int32_t{DSC_DTYPE_F32}, kHalves[0], kHalves[1]}) {
    const Memory some = bench.elements(numbers, dtype), wide = bench.elements(numbers, DSC_DTYPE_F32);
    CHECK(self, bench.numbers(some.get(), dtype, count) == numbers);
    space.add({some.get(), dtype, some.get(), dtype, count}, stream);
    CHECK(self, bench.numbers(some.get(), dtype, count) == times(numbers, 2));
    space.add({some.get(), dtype, wide.get(), DSC_DTYPE_F32, count}, stream);
    CHECK(self, bench.numbers(some.get(), dtype, count) == times(numbers, 3));
    space.scale({some.get(), count, dtype}, 0.5, stream);
    CHECK(self, bench.numbers(some.get(), dtype, count) == times(numbers, 1.5));
    space.copy({.to = some.get(),
                .to_dtype = dtype,
                .from = wide.get(),
                .from_dtype = DSC_DTYPE_F32,
                .count = count,
                .scale = 4},
               stream);
    CHECK(self, bench.numbers(some.get(), dtype, count) == times(numbers, 4));
    space.divide({some.get(), count, dtype}, 8, stream);
    CHECK(self, bench.numbers(some.get(), dtype, count) == times(numbers, 0.5));
    space.zero(some.get(), count * dsc::dtype_bytes(dtype), stream);
    CHECK(self, bench.numbers(some.get(), dtype, count) == std::vector<float>(count));
  }
  // The element 65536 is converted to f16 first, which makes it infinite.
  const Memory large = bench.elements({65536, -1}, DSC_DTYPE_F32), half = bench.take(2, DSC_DTYPE_F16);
  space.copy({.to = half.get(),
              .to_dtype = DSC_DTYPE_F16,
              .from = large.get(),
              .from_dtype = DSC_DTYPE_F32,
              .count = 2,
              .scale = 0.5},
             stream);
  CHECK(self, bench.numbers(half.get(), DSC_DTYPE_F16, 2) ==
                  (std::vector<float>{std::numeric_limits<float>::infinity(), -0.5F}));
  return 0;
}

int pack(rank_t* self, dsc::Comm& world) {
  Bench bench(world);
  Space& space = *bench.space;
  void* const stream = bench.stream.get();
  for (const int32_t dtype : {int32_t{DSC_DTYPE_F32}, kHalves[0], kHalves[1]}) {
    const Memory one = bench.elements({1, 2, 3}, DSC_DTYPE_F32), two = bench.elements({4, 5}, DSC_DTYPE_F32);
    const Memory block = bench.elements(std::vector<float>(8, 9), dtype);
    const Memory norm = space.take(space.norm_bytes(), stream);
    space.zero(norm.get(), space.norm_bytes(), stream);
    const TensorPart parts[] = {{one.get(), 3, 4}, {two.get(), 2, 1}};
    dsc::PartsCopy copy{
        .parts = parts, .tensor_dtype = DSC_DTYPE_F32, .block = block.get(), .block_dtype = dtype};
    copy.scale = 2;
    copy.norm = norm.get();
    space.gather(copy, stream);
    CHECK(self, bench.numbers(block.get(), dtype, 8) == (std::vector<float>{9, 8, 10, 9, 2, 4, 6, 9}));
    Norm found;
    space.read_norms({&found, 1}, norm.get(), stream, "the norm");
    CHECK(self, found.squares == 55 && found.most == 5 && found.nonfinite == 0);  // the values before scaling
    space.scale({block.get(), 8, dtype}, 0.5, stream);
    copy.scale = 1;
    space.scatter(copy, stream);
    CHECK(self, bench.numbers(one.get(), DSC_DTYPE_F32, 3) == (std::vector<float>{1, 2, 3}));
    CHECK(self, bench.numbers(two.get(), DSC_DTYPE_F32, 2) == (std::vector<float>{4, 5}));
  }
  // The rows of one matrix are copied to every second row of another.
  const Memory matrix = bench.elements({1, 2, 3, 4, 5, 6}, DSC_DTYPE_F32);
  const Memory spread = bench.elements(std::vector<float>(8), DSC_DTYPE_F32);
  constexpr size_t kRow = 2 * sizeof(float);
  space.copy_rows({.to = spread.get(),
                   .from = matrix.get(),
                   .rows = 2,
                   .row_bytes = kRow,
                   .to_stride = 2 * kRow,
                   .from_stride = kRow + sizeof(float)},
                  stream);
  CHECK(self, bench.numbers(spread.get(), DSC_DTYPE_F32, 8) == (std::vector<float>{1, 2, 0, 0, 4, 5, 0, 0}));
  return 0;
}

int measure(rank_t* self, dsc::Comm& world) {
  Bench bench(world);
  Space& space = *bench.space;
  void* const stream = bench.stream.get();
  std::vector<float> numbers(5003, 2);
  numbers[5002] = -7;
  for (const int32_t dtype : {int32_t{DSC_DTYPE_F32}, kHalves[0], kHalves[1]}) {
    const Memory some = bench.elements(numbers, dtype), none = bench.elements({0}, dtype);
    const Elements parts[] = {{some.get(), 5003, dtype}, {none.get(), 0, dtype}, {some.get(), 1, dtype}};
    const Norm norm = space.norm(parts, stream, "the norm");
    CHECK(self, norm.squares == 4 * 5003 + 49 && norm.most == 7 && norm.nonfinite == 0);
  }
  constexpr float kInfinite = std::numeric_limits<float>::infinity(),
                  kNaN = std::numeric_limits<float>::quiet_NaN();
  numbers[17] = kNaN;
  numbers[3000] = kInfinite;
  const Memory bad = bench.elements(numbers, DSC_DTYPE_F32);
  const Elements all{bad.get(), 5003, DSC_DTYPE_F32};
  const Norm norm = space.norm({&all, 1}, stream, "the norm");
  CHECK(self, std::isnan(norm.squares) && norm.most == kInfinite && norm.nonfinite == 2);
  CHECK(self, space.norm({}, stream, "no norm").squares == 0);
  return 0;
}

int follow(rank_t* self, dsc::Comm& world) {
  Bench bench(world);
  Space& space = *bench.space;
  const auto later = space.make_stream();
  const Memory shared = space.allocate(4096), own = space.allocate_own(100);
  CHECK(self, bench.numbers(shared.get(), DSC_DTYPE_F32, 1024) == std::vector<float>(1024));
  CHECK(self, bench.numbers(own.get(), DSC_DTYPE_F32, 25) == std::vector<float>(25));
  const Memory ones = bench.elements(std::vector<float>(1024, 1), DSC_DTYPE_F32);
  for (int i = 0; i < 20; ++i) {  // alternately, each operation after the previous one
    space.add({shared.get(), DSC_DTYPE_F32, ones.get(), DSC_DTYPE_F32, 1024},
              i % 2 == 0 ? bench.stream.get() : later.get());
    space.order(i % 2 == 0 ? bench.stream.get() : later.get(), i % 2 == 0 ? later.get() : bench.stream.get());
  }
  const dsc::Mark end = space.mark(bench.stream.get());
  CHECK(self, space.await(end, "the sums"));
  CHECK(self, space.wait_for(end, dsc::Deadline::after_ms(0)));
  CHECK(self, space.wait_idle(later.get(), dsc::Deadline::after_ms(10'000)));
  CHECK(self, bench.numbers(shared.get(), DSC_DTYPE_F32, 1024) == std::vector<float>(1024, 20));
  CHECK(self, !space.is_captured(bench.stream.get()));
  if (space.in_stream_order()) return 0;
  CHECK(self, failure_of([&] { space.check_stream(&space); }).code == DSC_ERR_UNSUPPORTED);
  return 0;
}

}  // namespace

void memory_computes(void**) { assert_int_equal(run(2, compute), 0); }
void memory_packs_tensors(void**) { assert_int_equal(run(2, pack), 0); }
void memory_has_norms(void**) { assert_int_equal(run(2, measure), 0); }
void memory_keeps_the_order(void**) { assert_int_equal(run(2, follow), 0); }

}  // namespace suite
