// The GPU kernels, on the fake GPU or a real one, compared with the host's conversions and sums.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "device/kernels.hpp"
#include "device/kernels/scalar.hpp"
#include "dtype/reduce.hpp"
#include "dtype_support.hpp"
#include "kernels_support.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

// Types named as in the fake GPU, because clang's sanitizer compares the types of functions by name.
namespace fake_gpu {
struct CudaGraph;
struct CudaGraphExec;
}  // namespace fake_gpu

namespace {

using dsc::CudaResult;
using NormResult = dsc::Kernels::NormResult;
using support::gpu;
using support::Kernels;
using support::kUntouched;
using support::Memory;
using support::watch;

constexpr uint64_t kCounts[] = {0, 1, 7, 255, 4096 + 3, 9 * 4096 + 1};

void fill(int32_t dtype, uint8_t* bytes, uint64_t count, std::mt19937_64& random) {
  const size_t size = dsc::dtype_bytes(dtype);
  std::vector<uint8_t> some(support::kMaxCount * 8);
  for (uint64_t at = 0; at < count; at += support::kMaxCount) {
    support::fill(dtype, some.data(), random);
    std::memcpy(bytes + at * size, some.data(), std::min<uint64_t>(support::kMaxCount, count - at) * size);
  }
}

// Converts as the host does: scales in f32 and rounds once.
std::vector<uint8_t> converted(int32_t from, int32_t to, const uint8_t* src, uint64_t count, double scale) {
  std::vector<uint8_t> out(count * dsc::dtype_bytes(to));
  if (from == to) {
    if (scale == 1)
      out.assign(src, src + out.size());
    else
      dsc::multiply(from, out.data(), src, count, scale);
    return out;
  }
  std::vector<float> wide(count);
  dsc::cast(DSC_DTYPE_F32, wide.data(), from, src, count);
  dsc::multiply(DSC_DTYPE_F32, wide.data(), wide.data(), count, scale);
  dsc::cast(to, out.data(), DSC_DTYPE_F32, wide.data(), count);
  return out;
}

std::vector<std::pair<int32_t, int32_t>> pairs() {
  std::vector<std::pair<int32_t, int32_t>> all;
  for (const int32_t dtype : support::kFloats) {
    all.emplace_back(dtype, dtype);
    if (dtype == DSC_DTYPE_F32 || dtype == DSC_DTYPE_F64) continue;
    all.emplace_back(DSC_DTYPE_F32, dtype);
    all.emplace_back(dtype, DSC_DTYPE_F32);
  }
  return all;
}

// ---- scalars ------------------------------------------------------------------------------------------

// Every upper half of 32 bits, combined with the lower halves that decide how a float is rounded.
std::vector<uint32_t> rounding_cases() {
  std::vector<uint32_t> cases;
  for (uint32_t high = 0; high <= 0xffff; ++high)
    for (const uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      cases.push_back(high << 16 | low);
  return cases;
}

template <class T>
void check_scalar(int32_t dtype) {
  using Stored = typename T::Stored;
  std::vector<Stored> all(size_t{1} << 8 * sizeof(Stored));
  std::iota(all.begin(), all.end(), Stored{0});
  std::vector<uint32_t> wide(all.size());
  dsc::cast(DSC_DTYPE_F32, wide.data(), dtype, all.data(), all.size());
  for (size_t i = 0; i < all.size(); ++i)
    if (dsc::kernels::F32::narrow(T::widen(all[i])) != wide[i])
      fail_msg("%s %#zx is %#x, expected %#x", dsc::dtype_name(dtype), i,
               dsc::kernels::F32::narrow(T::widen(all[i])), wide[i]);
  const std::vector<uint32_t> cases = rounding_cases();
  std::vector<Stored> narrow(cases.size());
  dsc::cast(dtype, narrow.data(), DSC_DTYPE_F32, cases.data(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i)
    if (T::narrow(dsc::kernels::F32::widen(cases[i])) != narrow[i])
      fail_msg("%s of %#x is %#x, expected %#x", dsc::dtype_name(dtype), cases[i],
               T::narrow(dsc::kernels::F32::widen(cases[i])), narrow[i]);
}

void scalars_are_the_hosts(void**) {
  check_scalar<dsc::kernels::F16>(DSC_DTYPE_F16);
  check_scalar<dsc::kernels::Bf16>(DSC_DTYPE_BF16);
  check_scalar<dsc::kernels::F8e4m3>(DSC_DTYPE_F8E4M3);
  check_scalar<dsc::kernels::F8e5m2>(DSC_DTYPE_F8E5M2);
}

// ---- buckets ------------------------------------------------------------------------------------------

void check_copy(const Kernels& kernels, int32_t from, int32_t to, uint64_t count, size_t from_skew,
                size_t to_skew, double scale) {
  std::mt19937_64 random(count * 256 + from_skew * 16 + to_skew);
  Memory source(count * dsc::dtype_bytes(from), from_skew), target(count * dsc::dtype_bytes(to), to_skew);
  fill(from, source.data(), count, random);
  const auto want = converted(from, to, source.data(), count, scale);
  kernels.copy({source.at(), target.at(), count, from, to, scale});
  const bool same = want.empty() || std::memcmp(target.data(), want.data(), want.size()) == 0;
  if (!same || !target.frame_is_untouched())
    fail_msg("%s to %s, %zu elements, %zu and %zu bytes off, times %g", dsc::dtype_name(from),
             dsc::dtype_name(to), size_t(count), from_skew, to_skew, scale);
}

void every_pair_at_any_address(void**) {
  const Kernels kernels;
  for (const auto& [from, to] : pairs())
    for (size_t skew = 0; skew < 16; ++skew)
      for (const double scale : {1.0, 0.3})
        for (const size_t other : {size_t{0}, skew, skew * dsc::dtype_bytes(to) / dsc::dtype_bytes(from)})
          check_copy(kernels, from, to, 5000, skew, other % 16, scale);
  for (const auto& [from, to] : pairs())
    for (const uint64_t count : kCounts) check_copy(kernels, from, to, count, 0, 0, 1.0 / 3);
}

void bytes_are_kept(void**) {
  const Kernels kernels;
  for (int32_t dtype = DSC_DTYPE_I8; dtype <= DSC_DTYPE_BOOL; ++dtype)
    for (size_t skew = 0; skew < 16; ++skew)
      for (const uint64_t count : kCounts) check_copy(kernels, dtype, dtype, count, skew, 16 - skew, 1);
}

// A bucket of many tensors, copied in both directions.
struct Bucket {
  int32_t tensor_dtype, bucket_dtype;
  std::vector<Memory> tensors;
  std::vector<dsc::BucketPart> parts;
  Memory bucket;

  Bucket(int32_t tensor, int32_t in_bucket, size_t n, unsigned seed)
      : tensor_dtype(tensor), bucket_dtype(in_bucket), bucket(0) {
    std::mt19937_64 random(seed);
    uint64_t at = 0;
    for (size_t i = 0; i < n; ++i) {
      const uint64_t count = random() % 8 == 0 ? random() % 20000 : random() % 300;
      tensors.emplace_back(count * dsc::dtype_bytes(tensor), random() % 4 * dsc::dtype_bytes(tensor));
      fill(tensor, tensors.back().data(), count, random);
      at += random() % 3;
      parts.push_back({0, count, at});
      at += count;
    }
    bucket = Memory(at * dsc::dtype_bytes(in_bucket));
    std::memset(bucket.data(), kUntouched, bucket.size());
  }

  dsc::BucketCopy copy(double scale, uint64_t norm = 0) {
    for (size_t i = 0; i < tensors.size(); ++i) parts[i].tensor = tensors[i].at();
    return {parts, tensor_dtype, bucket.at(), bucket_dtype, scale, norm};
  }
};

void check_bucket(int32_t tensor, int32_t in_bucket, size_t n, double scale, size_t launches) {
  const Kernels kernels;
  Bucket b(tensor, in_bucket, n, static_cast<unsigned>(n));
  std::vector<uint8_t> want(b.bucket.size(), kUntouched);
  const size_t bytes = dsc::dtype_bytes(in_bucket);
  for (size_t i = 0; i < n; ++i) {
    const auto one = converted(tensor, in_bucket, b.tensors[i].data(), b.parts[i].count, scale);
    if (!one.empty()) std::memcpy(want.data() + b.parts[i].offset * bytes, one.data(), one.size());
  }
  kernels.gather(b.copy(scale));
  assert_int_equal(watch.grids.size(), launches);
  assert_memory_equal(b.bucket.data(), want.data(), want.size());
  kernels.scatter(b.copy(1 / scale));
  for (size_t i = 0; i < n; ++i) {
    const auto one =
        converted(in_bucket, tensor, want.data() + b.parts[i].offset * bytes, b.parts[i].count, 1 / scale);
    assert_memory_equal(b.tensors[i].data(), one.data(), one.size());
    assert_true(b.tensors[i].frame_is_untouched());
  }
}

void many_tensors_are_few_launches(void**) {
  check_bucket(DSC_DTYPE_F32, DSC_DTYPE_F32, 148, 1, 1);
  check_bucket(DSC_DTYPE_F32, DSC_DTYPE_BF16, 161, 0.125, 1);
  check_bucket(DSC_DTYPE_BF16, DSC_DTYPE_F32, 700, 1.0 / 3, 3);
  check_bucket(DSC_DTYPE_I64, DSC_DTYPE_I64, 400, 1, 2);
  check_bucket(DSC_DTYPE_F16, DSC_DTYPE_F16, 33, 0.25, 1);
}

void a_grid_fits_the_gpu(void**) {
  Memory source(100 << 14), target(source.size());
  const dsc::ScaledCopy copy{source.at(), target.at(), source.size(), DSC_DTYPE_U8, DSC_DTYPE_U8};
  for (const auto& [multiprocessors, blocks] : {std::pair{1, 4u}, {7, 28u}, {1000, 100u}}) {
    const Kernels kernels(multiprocessors);
    kernels.copy(copy);
    assert_int_equal(watch.grids.back(), blocks);
  }
  Memory large(1100 << 14), other(large.size());
  const Kernels kernels(1000);
  kernels.copy({large.at(), other.at(), large.size(), DSC_DTYPE_U8, DSC_DTYPE_U8});
  assert_int_equal(watch.grids.back(), 1024);
}

void check_conversion(const Kernels& kernels, int32_t from, int32_t to, const void* src, size_t count) {
  Memory source(count * dsc::dtype_bytes(from)), target(count * dsc::dtype_bytes(to));
  std::memcpy(source.data(), src, source.size());
  std::vector<uint8_t> want(target.size());
  dsc::cast(to, want.data(), from, src, count);
  kernels.copy({source.at(), target.at(), count, from, to});
  assert_memory_equal(target.data(), want.data(), want.size());
}

// Like scalars_are_the_hosts, with the conversion instructions of the GPU.
void conversions_are_the_hosts(void**) {
  const Kernels kernels;
  const std::vector<uint32_t> cases = rounding_cases();
  std::vector<uint16_t> all(1 << 16);
  std::iota(all.begin(), all.end(), uint16_t{0});
  for (const int32_t dtype : {DSC_DTYPE_F16, DSC_DTYPE_BF16, DSC_DTYPE_F8E4M3, DSC_DTYPE_F8E5M2}) {
    check_conversion(kernels, DSC_DTYPE_F32, dtype, cases.data(), cases.size());
    check_conversion(kernels, dtype, DSC_DTYPE_F32, all.data(), all.size());
  }
}

void scales_in_place(void**) {
  const Kernels kernels;
  for (const int32_t dtype : support::kFloats) {
    std::mt19937_64 random(5);
    Memory memory(4099 * dsc::dtype_bytes(dtype), dsc::dtype_bytes(dtype));
    fill(dtype, memory.data(), 4099, random);
    const auto want = converted(dtype, dtype, memory.data(), 4099, -2.5);
    kernels.copy({memory.at(), memory.at(), 4099, dtype, dtype, -2.5});
    assert_memory_equal(memory.data(), want.data(), want.size());
    assert_true(memory.frame_is_untouched());
  }
}

// ---- norm ---------------------------------------------------------------------------------------------

NormResult result_of(Memory& norm) {
  NormResult result;
  std::memcpy(&result, norm.data(), sizeof result);
  return result;
}

Memory new_norm() {
  Memory norm(dsc::Kernels::norm_bytes());
  std::memset(norm.data(), 0, norm.size());
  return norm;
}

// Fills the memory with finite numbers and `nonfinite` NaNs or infinities.
template <typename T>
long double make_ordinary(Memory& memory, unsigned seed) {
  std::mt19937_64 random(seed);
  long double squared = 0;
  for (size_t at = 0; at < memory.size(); at += sizeof(T)) {
    const T value = static_cast<T>(std::ldexp(static_cast<double>(static_cast<int64_t>(random())), -50));
    std::memcpy(memory.data() + at, &value, sizeof value);
    squared += static_cast<long double>(value) * value;
  }
  return squared;
}

template <typename T>
void check_norm(int32_t dtype, double tolerance) {
  Bucket b(dtype, dtype, 300, 11);
  long double want = 0;
  for (size_t i = 0; i < b.tensors.size(); ++i)
    want += make_ordinary<T>(b.tensors[i], static_cast<unsigned>(i));
  NormResult before = {};
  for (const double scale : {1.0, 0.5, 1.0}) {
    const Kernels kernels(3);
    Memory norm = new_norm();
    kernels.gather(b.copy(scale, norm.at()));
    const NormResult once = result_of(norm);
    assert_int_equal(watch.grids.size(), 2);
    assert_true(std::fabs(once.squared - static_cast<double>(want)) <= tolerance * static_cast<double>(want));
    assert_int_equal(once.nonfinite, 0);
    double most = 0;
    for (Memory& tensor : b.tensors)
      most = std::max(most, support::largest(dtype, tensor.data(), tensor.size() / sizeof(T)));
    assert_true(once.most == most);
    if (before.squared != 0) assert_memory_equal(&once, &before, sizeof once);
    before = once;
    kernels.gather(b.copy(scale, norm.at()));
    assert_true(std::fabs(result_of(norm).squared - 2 * once.squared) <= 1e-12 * once.squared);
  }
}

void the_norm_is_exact_and_repeats(void**) {
  check_norm<float>(DSC_DTYPE_F32, 1e-13);
  check_norm<double>(DSC_DTYPE_F64, 1e-13);
}

void nonfinite_elements_are_counted(void**) {
  const Kernels kernels;
  for (const auto& [from, to] : pairs()) {
    std::mt19937_64 random(3);
    const uint64_t count = 3 * 4096 + 5;
    Memory source(count * dsc::dtype_bytes(from)), target(count * dsc::dtype_bytes(to)), norm = new_norm();
    fill(from, source.data(), count, random);
    uint64_t want = 0;
    for (uint64_t i = 0; i < count; ++i)
      want += std::isfinite(reference::accessors(from).value(source.data(), i)) ? 0 : 1;
    kernels.copy({source.at(), target.at(), count, from, to, 1, norm.at()});
    assert_true(want > 0);
    assert_int_equal(result_of(norm).nonfinite, want);
    assert_true(result_of(norm).most == support::largest(from, source.data(), count));
    const auto copied = converted(from, to, source.data(), count, 1);
    assert_memory_equal(target.data(), copied.data(), copied.size());
  }
}

void a_norm_alone_changes_nothing(void**) {
  const Kernels kernels;
  Memory memory(5001 * sizeof(float), 4), norm = new_norm();
  const long double want = make_ordinary<float>(memory, 4);
  const std::vector<uint8_t> before(memory.data(), memory.data() + memory.size());
  for (const double scale : {1.0, 2.0}) {
    const uint64_t at = memory.at();
    kernels.copy({at, at, 5001, DSC_DTYPE_F32, DSC_DTYPE_F32, scale, norm.at()});
    assert_true(scale != 1 || std::memcmp(memory.data(), before.data(), before.size()) == 0);
  }
  assert_true(std::fabs(result_of(norm).squared - 2 * static_cast<double>(want)) <=
              1e-12 * static_cast<double>(want));
  const auto doubled = converted(DSC_DTYPE_F32, DSC_DTYPE_F32, before.data(), 5001, 2);
  assert_memory_equal(memory.data(), doubled.data(), doubled.size());
}

void a_large_norm_does_not_overflow(void**) {
  const Kernels kernels;
  Memory source(8 * sizeof(float)), target(source.size()), norm = new_norm();
  for (int i = 0; i < 8; ++i) {
    const float value = 1e30f;
    std::memcpy(source.data() + i * sizeof value, &value, sizeof value);
  }
  kernels.copy({source.at(), target.at(), 8, DSC_DTYPE_F32, DSC_DTYPE_F32, 1, norm.at()});
  const double each = static_cast<double>(1e30f);
  assert_true(result_of(norm).squared == 8 * each * each);
}

// ---- strided copies -----------------------------------------------------------------------------------

void check_slices(const Kernels& kernels, uint64_t parts, uint64_t outer, uint64_t part_bytes, size_t skew) {
  std::mt19937_64 random(parts * 1000 + outer);
  Memory stacked(parts * outer * part_bytes, skew), whole(stacked.size()), back(stacked.size(), skew / 2);
  fill(DSC_DTYPE_U8, stacked.data(), stacked.size(), random);
  kernels.copy_strided(dsc::join_slices(stacked.at(), whole.at(), parts, outer, part_bytes));
  kernels.copy_strided(dsc::split_slices(whole.at(), back.at(), parts, outer, part_bytes));
  bool right = whole.frame_is_untouched() && back.frame_is_untouched();
  for (uint64_t p = 0; p < parts; ++p)
    for (uint64_t o = 0; o < outer; ++o)
      right &= std::memcmp(stacked.data() + (p * outer + o) * part_bytes,
                           whole.data() + (o * parts + p) * part_bytes, part_bytes) == 0;
  if (!right || std::memcmp(stacked.data(), back.data(), stacked.size()) != 0)
    fail_msg("%zu parts, outer %zu, %zu bytes, %zu off", size_t(parts), size_t(outer), size_t(part_bytes),
             skew);
}

void slices_are_joined_and_split(void**) {
  const Kernels kernels;
  for (const uint64_t parts : {1, 2, 3, 8})
    for (const uint64_t outer : {1, 2, 5, 129})
      for (const uint64_t part_bytes : {1, 2, 6, 12, 64, 200, 2050, 4096, 16400})
        check_slices(kernels, parts, outer, part_bytes, part_bytes % 3 == 0 ? 4 : 0);
  for (size_t skew = 0; skew < 16; ++skew) check_slices(kernels, 4, 33, 96, skew);
}

// Takes one slice of the last dimension. The other slices belong to other ranks.
void one_slice_is_taken(void**) {
  const Kernels kernels;
  Memory whole(30 * 7 * 12), slice(30 * 12);
  std::mt19937_64 random(1);
  fill(DSC_DTYPE_U8, whole.data(), whole.size(), random);
  kernels.copy_strided({.from = whole.at() + 24,
                        .to = slice.at(),
                        .parts = 1,
                        .rows = 30,
                        .row_bytes = 12,
                        .from_part = 0,
                        .from_row = 84,
                        .to_part = 0,
                        .to_row = 12});
  for (size_t row = 0; row < 30; ++row)
    assert_memory_equal(slice.data() + row * 12, whole.data() + 24 + row * 84, 12);
  assert_true(slice.frame_is_untouched());
}

// The strides are less aligned than the rows and the addresses.
void strides_of_any_alignment(void**) {
  const Kernels kernels;
  for (const auto& [odd_part, odd_row] :
       {std::pair{0u, 0u}, {1u, 0u}, {4u, 0u}, {8u, 0u}, {0u, 1u}, {16u, 2u}}) {
    dsc::StridedCopy copy{0, 0, 3, 5, 64, 480 + odd_part, 80 + odd_row, 640 + odd_part, 96 + odd_row};
    Memory from(3 * copy.from_part), to(3 * copy.to_part);
    std::mt19937_64 random(odd_part);
    fill(DSC_DTYPE_U8, from.data(), from.size(), random);
    std::memset(to.data(), 0, to.size());
    std::vector<uint8_t> want(to.size());
    for (uint64_t part = 0; part < 3; ++part)
      for (uint64_t row = 0; row < 5; ++row)
        std::memcpy(want.data() + part * copy.to_part + row * copy.to_row,
                    from.data() + part * copy.from_part + row * copy.from_row, 64);
    copy.from = from.at(), copy.to = to.at();
    kernels.copy_strided(copy);
    assert_memory_equal(to.data(), want.data(), want.size());
  }
}

// ---- sums ---------------------------------------------------------------------------------------------

void check_sum(const Kernels& kernels, int32_t dtype, uint32_t parts, uint64_t count, size_t skew,
               double prescale, int32_t divisor) {
  const size_t bytes = count * dsc::dtype_bytes(dtype);
  std::mt19937_64 random(parts * 100 + count);
  Memory source(parts * bytes, skew), target(bytes, skew);
  fill(dtype, source.data(), parts * count, random);
  std::vector<const void*> srcs;
  for (uint32_t i = 0; i < parts; ++i) srcs.push_back(source.data() + i * bytes);
  std::vector<uint8_t> want(bytes);
  void* dst = want.data();
  const dsc::ReduceSpec spec{
      .dtype = dtype, .op = divisor == 1 ? DSC_OP_SUM : DSC_OP_AVG, .divisor = divisor, .prescale = prescale};
  dsc::reduce(spec, srcs.data(), static_cast<int>(parts), &dst, 1, count);
  kernels.sum_parts({source.at(), target.at(), count, parts, dtype, prescale, static_cast<double>(divisor)});
  if (std::memcmp(target.data(), want.data(), bytes) != 0 || !target.frame_is_untouched())
    fail_msg("%s, %u parts of %zu, %zu off, times %g, by %d", dsc::dtype_name(dtype), parts, size_t(count),
             skew, prescale, divisor);
}

void sums_are_the_hosts(void**) {
  const Kernels kernels;
  for (const int32_t dtype : support::kFloats) {
    for (const uint32_t parts : {1u, 2u, 3u, 4u, 5u, 9u})
      for (const uint64_t count : {1, 7, 1024, 4099, 40000})
        for (const double prescale : {1.0, 1.0 / 3})
          check_sum(kernels, dtype, parts, count, 0, prescale, static_cast<int32_t>(parts));
    for (size_t skew = 0; skew < 16; ++skew)
      for (const uint64_t count : {640, 333, 16384}) check_sum(kernels, dtype, 4, count, skew, 1, 1);
  }
}

// ---- refusals -----------------------------------------------------------------------------------------

void expect_error(dsc_result_t code, const char* words, const std::function<void()>& act) {
  try {
    act();
  } catch (const dsc::Error& error) {
    if (error.code() != code || std::strstr(error.what(), words) == nullptr)
      fail_msg("%s: %s; expected %s", dsc::result_name(error.code()), error.what(), words);
    return;
  }
  fail_msg("no error; expected %s", words);
}

void what_there_is_no_kernel_for(void**) {
  const Kernels kernels;
  const auto copy = [&](int32_t from, int32_t to, double scale, uint64_t norm) {
    return [&kernels, from, to, scale, norm] { kernels.copy({0, 0, 1, from, to, scale, norm}); };
  };
  expect_error(DSC_ERR_UNSUPPORTED, "f16 (dtype 7) to bf16 (dtype 10)",
               copy(DSC_DTYPE_F16, DSC_DTYPE_BF16, 1, 0));
  expect_error(DSC_ERR_UNSUPPORTED, "i32 (dtype 3) to f32", copy(DSC_DTYPE_I32, DSC_DTYPE_F32, 1, 0));
  expect_error(DSC_ERR_UNSUPPORTED, "i32 (dtype 3) with a scale", copy(DSC_DTYPE_I32, DSC_DTYPE_I32, 2, 0));
  expect_error(DSC_ERR_UNSUPPORTED, "bool", copy(DSC_DTYPE_BOOL, DSC_DTYPE_BOOL, 1, 64));
  expect_error(DSC_ERR_UNSUPPORTED, "dtype 99", copy(99, 99, 1, 0));
  expect_error(DSC_ERR_UNSUPPORTED, "sums i64", [&] { kernels.sum_parts({0, 0, 1, 1, DSC_DTYPE_I64}); });
  assert_int_equal(watch.grids.size(), 0);
}

void what_the_driver_refuses(void**) {
  {
    const Kernels kernels;
    Memory memory(64);
    const uint64_t at = memory.at();
    watch.refuses_launch = true;
    expect_error(DSC_ERR_BACKEND, "cuLaunchKernel of dsc_copy failed: ", [&] {
      kernels.copy({at, at + 8, 8, DSC_DTYPE_U8, DSC_DTYPE_U8});
    });
    watch.refuses_launch = false;
  }
  assert_int_equal(watch.modules, 0);
  watch.lacking = "dsc_reduce_bf16";
  expect_error(DSC_ERR_BACKEND, "cuModuleGetFunction of dsc_reduce_bf16 failed: ", [] { Kernels(); });
  watch.lacking.clear();
  assert_int_equal(watch.modules, 0);
  watch.refuses_image = true;
  expect_error(dsc::has_kernels() ? DSC_ERR_BACKEND : DSC_ERR_UNSUPPORTED, "kernels", [] { Kernels(); });
  watch.refuses_image = false;
  const std::array<std::byte, 64> image = {};
  expect_error(DSC_ERR_BACKEND, "cuModuleLoadData", [&] { dsc::Kernels(support::watched_cuda(), 1, image); });
}

// A replayed graph reads the data that is in memory at the time of the replay.
void launches_are_captured(void**) {
  using Graph = fake_gpu::CudaGraph;
  using Runnable = fake_gpu::CudaGraphExec;
  const auto begin =
      gpu().symbol<CudaResult(dsc::CudaStream*, dsc::CudaCaptureMode)>("cuStreamBeginCapture_v2");
  const auto end = gpu().symbol<CudaResult(dsc::CudaStream*, Graph**)>("cuStreamEndCapture");
  const auto instantiate =
      gpu().symbol<CudaResult(Runnable**, Graph*, unsigned long long)>("cuGraphInstantiateWithFlags");
  const auto replay = gpu().symbol<CudaResult(Runnable*, dsc::CudaStream*)>("cuGraphLaunch");
  const Kernels kernels;
  Bucket b(DSC_DTYPE_F32, DSC_DTYPE_BF16, 300, 5);
  Memory norm = new_norm(), joined(64), sum(64), source(64);
  const dsc::BucketCopy copy = b.copy(0.5, norm.at());
  const uint64_t from = source.at(), to = joined.at(), total = sum.at();
  Graph* graph = nullptr;
  Runnable* runnable = nullptr;
  support::need(begin(gpu().stream, dsc::CudaCaptureMode::global), "begin");
  kernels.unfinished().gather(copy, gpu().stream);
  kernels.unfinished().copy_strided(dsc::join_slices(from, to, 4, 4, 4), gpu().stream);
  kernels.unfinished().sum_parts({from, total, 4, 4, DSC_DTYPE_F32}, gpu().stream);
  support::need(end(gpu().stream, &graph), "end");
  support::need(instantiate(&runnable, graph, 0), "instantiate");
  std::mt19937_64 random(2);
  for (int round = 0; round < 2; ++round) {
    fill(DSC_DTYPE_F32, b.tensors[7].data(), b.parts[7].count, random);
    fill(DSC_DTYPE_U8, source.data(), source.size(), random);
    b.copy(0.5), source.at(), joined.at(), sum.at();
    support::need(replay(runnable, gpu().stream), "replay");
    Memory::finish();
    const auto want = converted(DSC_DTYPE_F32, DSC_DTYPE_BF16, b.tensors[7].data(), b.parts[7].count, 0.5);
    assert_memory_equal(b.bucket.data() + 2 * b.parts[7].offset, want.data(), want.size());
    assert_memory_equal(joined.data() + 4, source.data() + 16, 4);
  }
}

void nobody_misused_the_driver(void**) {
  const auto misuses = gpu().symbol<int()>("fake_gpu_misuses");
  if (misuses != nullptr) assert_int_equal(misuses(), 0);
}

void the_image_is_a_fatbin(void**) {
  uint32_t magic = 0;
  assert_true(dsc::kernels_image().size() >= 16);
  std::memcpy(&magic, dsc::kernels_image().data(), sizeof magic);
  assert_int_equal(magic, 0xba55ed50);
  assert_true(dsc::has_kernels() == (dsc::kernels_image().size() > 16));
}

void nothing_to_do_is_no_launch(void**) {
  const Kernels kernels;
  kernels.gather({{}, DSC_DTYPE_F32, 0, DSC_DTYPE_F16});
  kernels.copy({0, 0, 0, DSC_DTYPE_F32, DSC_DTYPE_F32, 2});
  kernels.copy({64, 64, 5, DSC_DTYPE_F32, DSC_DTYPE_F32});
  kernels.copy_strided(dsc::join_slices(0, 0, 0, 3, 4));
  kernels.sum_parts({0, 0, 0, 3, DSC_DTYPE_F32});
  assert_int_equal(watch.grids.size(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(scalars_are_the_hosts),
      cmocka_unit_test(every_pair_at_any_address),
      cmocka_unit_test(bytes_are_kept),
      cmocka_unit_test(many_tensors_are_few_launches),
      cmocka_unit_test(a_grid_fits_the_gpu),
      cmocka_unit_test(scales_in_place),
      cmocka_unit_test(conversions_are_the_hosts),
      cmocka_unit_test(the_norm_is_exact_and_repeats),
      cmocka_unit_test(nonfinite_elements_are_counted),
      cmocka_unit_test(a_norm_alone_changes_nothing),
      cmocka_unit_test(a_large_norm_does_not_overflow),
      cmocka_unit_test(slices_are_joined_and_split),
      cmocka_unit_test(one_slice_is_taken),
      cmocka_unit_test(strides_of_any_alignment),
      cmocka_unit_test(sums_are_the_hosts),
      cmocka_unit_test(what_there_is_no_kernel_for),
      cmocka_unit_test(what_the_driver_refuses),
      cmocka_unit_test(the_image_is_a_fatbin),
      cmocka_unit_test(nothing_to_do_is_no_launch),
      cmocka_unit_test(launches_are_captured),
      cmocka_unit_test(nobody_misused_the_driver),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
