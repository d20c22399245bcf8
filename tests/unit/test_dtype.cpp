// Element types and kernels: every operation, type, shape and instruction set, compared with a plain
// reference bit for bit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "dtype/dtype.hpp"
#include "dtype/kernels.hpp"
#include "dtype/reduce.hpp"
#include "dtype_reference.hpp"
#include "dtype_support.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using reference::Bf16;
using reference::E4m3;
using reference::E5m2;
using reference::F16;
using reference::Reduction;
using support::Arrays;
using support::kFloats;
using support::kMaxCount;
using support::kMaxSources;
using support::on_every_target;

std::string csv_path;

struct Shape {
  int src_count;
  size_t count;
  // the first source's offset from the start of a cache line; each further source has an offset 3 bytes
  // larger
  size_t offset_bytes;
  bool in_place;  // the second destination is the last source
};

std::string describe(const dsc::ReduceSpec& spec, const Shape& shape, const char* target) {
  char text[200];
  std::snprintf(
      text, sizeof text, "%s %s, %d sources of %zu, offset %zu, divisor %d, scale %g%s, %d streamed, %s",
      dsc::dtype_name(spec.dtype), dsc::op_name(spec.op), shape.src_count, shape.count, shape.offset_bytes,
      spec.divisor, spec.prescale, shape.in_place ? ", in place" : "", spec.streamed, target);
  return text;
}

// There are two destinations. Whole buffers are compared, so that a byte written beside the result is found
// too.
void check_reduce(const dsc::ReduceSpec& spec, const Shape& shape, const Arrays& arrays, const char* target) {
  const size_t bytes = shape.count * dsc::dtype_bytes(spec.dtype);
  std::vector<std::vector<uint8_t>> buffers;
  std::vector<const void*> srcs;
  for (int s = 0; s < shape.src_count; ++s) {
    const size_t skew = shape.offset_bytes == 0 ? 0 : (shape.offset_bytes + 3 * s) % 64;
    auto& buffer = buffers.emplace_back(bytes + 2 * Arrays::kMargin, uint8_t{0xa5});
    std::memcpy(buffer.data() + skew, arrays.data[s].data() + Arrays::kMargin, bytes);
    srcs.push_back(buffer.data() + skew);
  }
  std::vector<uint8_t> first(bytes + 2 * Arrays::kMargin, 0xa5), second(first);
  uint8_t* dsts[] = {first.data() + Arrays::kMargin / 2 + shape.offset_bytes,
                     shape.in_place ? const_cast<uint8_t*>(static_cast<const uint8_t*>(srcs.back()))
                                    : second.data() + Arrays::kMargin / 2 + 16};
  auto& second_buffer = shape.in_place ? buffers.back() : second;
  std::vector<uint8_t> first_expected(first), second_expected(second_buffer);
  const Reduction same{spec.op, spec.prescale, spec.op == DSC_OP_AVG ? double(spec.divisor) : 1.0};
  uint8_t* expected = first_expected.data() + (dsts[0] - first.data());
  reference::reduce_for(spec.dtype)(same, srcs.data(), shape.src_count, expected, shape.count);
  std::memcpy(second_expected.data() + (dsts[1] - second_buffer.data()), expected, bytes);

  void* targets[] = {dsts[0], dsts[1]};
  dsc::reduce(spec, srcs.data(), shape.src_count, targets, 2, shape.count);
  if (first != first_expected || second_buffer != second_expected)
    fail_msg("wrong: %s", describe(spec, shape, target).c_str());
}

void check_shapes(dsc::ReduceSpec spec, const Arrays& arrays, const char* target) {
  for (int src_count = 1; src_count <= kMaxSources; ++src_count)
    for (const size_t count : {0, 1, 3, 15, 16, 17, 63, 64, 65, 257, 1000})
      for (const size_t offset : {0, 1, 4, 8})
        for (const bool in_place : {false, true})
          for (const int streamed : {0, 1, dsc::kAllDestinations}) {
            spec.streamed = streamed;
            check_reduce(spec, {src_count, count, offset, in_place}, arrays, target);
          }
}

void reduces_every_type_and_shape(void**) {
  on_every_target([](const char* target) {
    for (int32_t dtype = DSC_DTYPE_I8; dtype <= DSC_DTYPE_BOOL; ++dtype) {
      const Arrays arrays(dtype, kMaxSources, 1);
      for (int32_t op = DSC_OP_SUM; op <= DSC_OP_BXOR; ++op)
        if (dsc::op_supports(op, dtype)) check_shapes({dtype, op, op == DSC_OP_AVG ? 3 : 1}, arrays, target);
    }
  });
}

void scales_and_divides(void**) {
  on_every_target([](const char* target) {
    for (const int32_t dtype : kFloats)
      for (const double prescale : {1.0, 1.0 / 3, 1.0 / 1024, 1e30, -1.0})
        for (const int divisor : {1, 2, 3, 7, 1 << 20})
          for (const int32_t op : {DSC_OP_AVG, DSC_OP_MAX, DSC_OP_PROD}) {
            const Arrays arrays(dtype, kMaxSources, 2);
            const dsc::ReduceSpec spec{dtype, op, divisor, prescale};
            for (const int src_count : {1, 2, 4})
              check_reduce(spec, {src_count, 1000, 4, true}, arrays, target);
          }
  });
}

// Tests multiply(), divide() and add() on all 65,536 half-precision floats, all 256 smaller floats, and
// special numbers of the other types.
void helpers_match_the_reference(void**) {
  constexpr size_t kCount = 1 << 16;
  on_every_target([](const char* target) {
    for (const int32_t dtype : kFloats) {
      std::vector<uint64_t> src(kCount), other(kCount), dst(kCount), expected(kCount);
      std::mt19937_64 random(3);
      for (size_t i = 0; i < kCount; ++i) src[i] = other[kCount - 1 - i] = random();
      for (size_t i = 0; i < kCount; ++i) {
        if (dsc::dtype_bytes(dtype) == 1) reinterpret_cast<uint8_t*>(src.data())[i] = static_cast<uint8_t>(i);
        if (dsc::dtype_bytes(dtype) == 2)
          reinterpret_cast<uint16_t*>(src.data())[i] = static_cast<uint16_t>(i);
      }
      const void* in[] = {other.data(), src.data()};
      const auto same = [&](const char* what, double number) {
        if (std::memcmp(dst.data(), expected.data(), kCount * dsc::dtype_bytes(dtype)) != 0)
          fail_msg("%s of %s by %g is wrong, %s", what, dsc::dtype_name(dtype), number, target);
      };
      for (const double number : {3.0, 8.0, 0.1, -1.5, 1e-40, 0x1p-130, 0.0}) {
        dsc::multiply(dtype, dst.data(), src.data(), kCount, number);
        reference::reduce_for(dtype)({DSC_OP_SUM, number, 1}, in + 1, 1, expected.data(), kCount);
        same("multiply", number);
        dsc::divide(dtype, dst.data(), src.data(), kCount, number);
        reference::reduce_for(dtype)({DSC_OP_SUM, 1, number}, in + 1, 1, expected.data(), kCount);
        same("divide", number);
      }
      dst = other;
      dsc::add(dtype, dst.data(), src.data(), kCount);
      reference::reduce_for(dtype)({DSC_OP_SUM}, in, 2, expected.data(), kCount);
      same("add", 1);
    }
  });
}

// Casts every code of the type to f32. Then casts every number of the type, every tie between two numbers,
// and the f32 neighbors of the ties from f32 to the type.
template <typename H>
void check_casts(int32_t dtype, const char* target) {
  using Code = decltype(H::bits);
  constexpr size_t kCodes = size_t{1} << (8 * sizeof(Code));
  std::vector<Code> codes(kCodes), packed;
  std::vector<float> floats(kCodes), inputs;
  for (size_t i = 0; i < kCodes; ++i) codes[i] = static_cast<Code>(i);
  dsc::cast(DSC_DTYPE_F32, floats.data(), dtype, codes.data(), kCodes);
  for (size_t i = 0; i < kCodes; ++i) {
    const float expected = H{codes[i]}.value();
    if (std::bit_cast<uint32_t>(floats[i]) != std::bit_cast<uint32_t>(expected))
      fail_msg("%s %04zx became %a, expected %a, %s", dsc::dtype_name(dtype), i, floats[i], expected, target);
    const float next = H{static_cast<Code>(i + 1)}.value();
    const float tie = static_cast<float>((double(expected) + double(next)) / 2);
    for (const float f : {expected, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 2 * tie)})
      inputs.push_back(f);
  }
  std::mt19937 random(4);
  for (int i = 0; i < 100001; ++i) inputs.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  packed.resize(inputs.size());
  dsc::cast(dtype, packed.data(), DSC_DTYPE_F32, inputs.data(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (packed[i] != H::from(inputs[i]).bits)
      fail_msg("%a became %s %04x, expected %04x, %s", inputs[i], dsc::dtype_name(dtype), packed[i],
               H::from(inputs[i]).bits, target);
}

void casts_exactly(void**) {
  on_every_target([](const char* target) {
    check_casts<F16>(DSC_DTYPE_F16, target);
    check_casts<Bf16>(DSC_DTYPE_BF16, target);
    check_casts<E4m3>(DSC_DTYPE_F8E4M3, target);
    check_casts<E5m2>(DSC_DTYPE_F8E5M2, target);
  });
}

struct Float8Row {
  float number;
  uint8_t e4m3;
  uint8_t e5m2;
};

// The expected codes are from the definitions of the formats. The inputs are the ends of the ranges, and
// numbers outside of the ranges.
void casts_8_bit_floats_as_defined(void**) {
  const Float8Row rows[] = {
      {0.0f, 0x00, 0x00},      {-0.0f, 0x80, 0x80},     {1.0f, 0x38, 0x3c},     {-1.0f, 0xb8, 0xbc},
      {448.0f, 0x7e, 0x5f},    {464.0f, 0x7e, 0x5f},    {464.01f, 0x7f, 0x5f},  {-465.0f, 0x7f, 0xdf},
      {57344.0f, 0x7f, 0x7b},  {61439.0f, 0x7f, 0x7b},  {61440.0f, 0x7f, 0x7c}, {-61440.0f, 0x7f, 0xfc},
      {INFINITY, 0x7f, 0x7c},  {-INFINITY, 0x7f, 0xfc}, {NAN, 0x7f, 0x7e},      {-NAN, 0x7f, 0x7e},
      {0x1p-6f, 0x08, 0x24},   {0x1p-9f, 0x01, 0x18},   {0x1p-10f, 0x00, 0x14}, {0x1.002p-10f, 0x01, 0x14},
      {0x1.8p-9f, 0x02, 0x1a}, {0x1p-16f, 0x00, 0x01},  {0x1p-17f, 0x00, 0x00}, {0x1.8p-16f, 0x00, 0x02}};
  for (const Float8Row& row : rows) {
    uint8_t e4m3, e5m2;
    dsc::cast(DSC_DTYPE_F8E4M3, &e4m3, DSC_DTYPE_F32, &row.number, 1);
    dsc::cast(DSC_DTYPE_F8E5M2, &e5m2, DSC_DTYPE_F32, &row.number, 1);
    if (e4m3 != row.e4m3 || e5m2 != row.e5m2) fail_msg("%a became %02x and %02x", row.number, e4m3, e5m2);
  }
}

// Any byte except 0 is true. Results are 0 or 1.
void reduces_truth_values(void**) {
  const uint8_t a[] = {0, 0, 1, 1, 0x80, 2, 255}, b[] = {0, 4, 0, 1, 0x40, 0, 1};
  const uint8_t either[] = {0, 1, 1, 1, 1, 1, 1}, both[] = {0, 0, 0, 1, 1, 0, 1},
                one[] = {0, 1, 1, 0, 0, 1, 0};
  const struct {
    int32_t op;
    const uint8_t* expected;
  } rows[] = {{DSC_OP_SUM, either}, {DSC_OP_MAX, either}, {DSC_OP_BOR, either}, {DSC_OP_PROD, both},
              {DSC_OP_MIN, both},   {DSC_OP_BAND, both},  {DSC_OP_BXOR, one}};
  for (const auto& row : rows) {
    uint8_t result[sizeof a];
    const void* srcs[] = {a, b};
    void* dst = result;
    dsc::reduce({DSC_DTYPE_BOOL, row.op}, srcs, 2, &dst, 1, sizeof a);
    assert_memory_equal(result, row.expected, sizeof a);
    dsc::reduce({DSC_DTYPE_BOOL, row.op}, srcs, 1, &dst, 1, sizeof a);
    for (size_t i = 0; i < sizeof a; ++i) assert_int_equal(result[i], a[i] != 0);
  }
}

// The file has the columns f32_bits, f16_bits and bf16_bits. They are from another implementation, whose NaNs
// have other payloads.
void casts_like_the_vectors(void**) {
  std::ifstream file(csv_path);
  std::string line;
  std::getline(file, line);
  assert_string_equal(line.c_str(), "f32_bits,f16_bits,bf16_bits");
  int rows = 0;
  for (unsigned f32, f16, bf16; std::getline(file, line); ++rows) {
    assert_int_equal(std::sscanf(line.c_str(), "%x,%x,%x", &f32, &f16, &bf16), 3);
    const float value = std::bit_cast<float>(f32);
    uint16_t got_f16, got_bf16;
    dsc::cast(DSC_DTYPE_F16, &got_f16, DSC_DTYPE_F32, &value, 1);
    dsc::cast(DSC_DTYPE_BF16, &got_bf16, DSC_DTYPE_F32, &value, 1);
    assert_int_equal(got_f16, std::isnan(value) ? F16::kNan : f16);
    assert_int_equal(got_bf16, std::isnan(value) ? Bf16::kNan : bf16);
  }
  assert_true(rows > 100);
}

void copies_bytes(void**) {
  std::vector<uint8_t> src(5000), dst(5200), expected;
  std::mt19937 random(5);
  for (auto& byte : src) byte = static_cast<uint8_t>(random());
  for (const bool non_temporal : {false, true})
    for (const size_t bytes : {0, 1, 63, 64, 300, 4999})
      for (const size_t offset : {0, 1, 31, 64}) {
        expected.assign(dst.size(), 7);
        std::memcpy(expected.data() + offset, src.data() + 1, bytes);
        dst.assign(dst.size(), 7);
        dsc::copy_bytes(dst.data() + offset, src.data() + 1, bytes, non_temporal);
        assert_true(dst == expected);
      }
  const std::vector<uint8_t> before = src;
  for (const bool non_temporal : {false, true})
    for (const size_t bytes : {0, 1, 63, 64, 300, 4999})
      for (const size_t offset : {0, 1, 31, 64}) {
        expected.assign(dst.size(), 7);
        std::memcpy(expected.data() + offset, src.data() + 1, bytes);
        dst.assign(dst.size(), 7);
        dsc::take(dst.data() + offset, src.data() + 1, bytes, non_temporal);
        assert_true(dst == expected && src == before);
      }
}

// Some distances within a page need another way of copying.
void copies_bytes_at_all_distances_within_a_page(void**) {
  constexpr size_t kPage = 4096, kBytes = 9001;
  std::vector<uint8_t> src(3 * kPage + kBytes), dst(src.size()), expected(src.size());
  std::iota(src.begin(), src.end(), uint8_t{3});
  const auto place = [](std::vector<uint8_t>& memory, size_t offset) {
    return (kPage - reinterpret_cast<uintptr_t>(memory.data()) % kPage) + offset;
  };
  const size_t from = place(src, 100);
  for (size_t distance = 0; distance < 2 * kPage; distance += distance % kPage < 80 ? 1 : 333) {
    const size_t to = place(dst, (100 + distance) % kPage);
    expected.assign(dst.size(), 7);
    std::memcpy(expected.data() + to, src.data() + from, kBytes);
    dst.assign(dst.size(), 7);
    dsc::copy_bytes(dst.data() + to, src.data() + from, kBytes);
    assert_true(dst == expected);
  }
}

// Rounding mode, denormals and traps that the caller has set do not change the result, and they are restored.
void ignores_and_restores_the_floating_point_mode(void**) {
  for (const int32_t dtype : kFloats)
    for (const int32_t op : {DSC_OP_SUM, DSC_OP_PROD, DSC_OP_AVG}) {
      const Arrays arrays(dtype, 2, 6);
      const void* srcs[] = {arrays.data[0].data() + Arrays::kMargin, arrays.data[1].data() + Arrays::kMargin};
      std::vector<uint64_t> expected(kMaxCount), got(kMaxCount);
      void* dst = expected.data();
      const dsc::ReduceSpec spec{dtype, op, 3, 0.7};
      dsc::reduce(spec, srcs, 2, &dst, 1, kMaxCount);
      dst = got.data();
      for (const int rounding : {FE_UPWARD, FE_TOWARDZERO}) {
        std::fesetround(rounding);
        dsc::reduce(spec, srcs, 2, &dst, 1, kMaxCount);
        const int after = std::fegetround();
        std::fesetround(FE_TONEAREST);
        assert_int_equal(after, rounding);
        assert_true(got == expected);
      }
#if defined(__x86_64__)
      const unsigned before = _mm_getcsr();
      for (const unsigned mode :
           // flush denormals to zero and read them as zero; round to zero; all traps except one
           {0x9fc0u, 0xffc0u, 0x1000u}) {
        got.assign(kMaxCount, 0);
        _mm_setcsr(mode);
        dsc::reduce(spec, srcs, 2, &dst, 1, kMaxCount);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        assert_int_equal(after, mode);
        assert_true(got == expected);
      }
#endif
    }
}

void every_target_is_another_kernel(void**) {
  std::vector<dsc::Kernel> kernels;
  on_every_target([&](const char*) {
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    kernels.push_back(dsc::float_kernel(DSC_DTYPE_F32));
  });
#if defined(__x86_64__)
  std::sort(kernels.begin(), kernels.end());
  assert_true(std::unique(kernels.begin(), kernels.end()) == kernels.end());
#endif
  assert_true(!kernels.empty());
}

void knows_types_and_operations(void**) {
  const size_t sizes[] = {0, 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1, 1};
  for (int32_t dtype = 0; dtype <= DSC_DTYPE_BOOL; ++dtype) {
    assert_int_equal(dsc::is_dtype(dtype), dtype != 0);
    assert_int_equal(dsc::dtype_bytes(dtype), sizes[dtype]);
  }
  for (const int32_t bad : {-1, 14, 1 << 30, INT32_MIN}) {
    assert_false(dsc::is_dtype(bad));
    assert_int_equal(dsc::dtype_bytes(bad), 0);
    assert_string_equal(dsc::dtype_name(bad), "unknown dtype");
    assert_false(dsc::is_op(bad));
    assert_string_equal(dsc::op_name(bad), "unknown op");
    assert_false(dsc::op_supports(DSC_OP_SUM, bad));
    assert_false(dsc::op_supports(bad, DSC_DTYPE_F32));
  }
  assert_string_equal(dsc::dtype_name(DSC_DTYPE_F32), "f32");
  assert_string_equal(dsc::dtype_name(DSC_DTYPE_BF16), "bf16");
  assert_string_equal(dsc::op_name(DSC_OP_SUM), "sum");
  assert_string_equal(dsc::op_name(DSC_OP_BXOR), "bxor");
  assert_true(dsc::is_floating(DSC_DTYPE_F8E4M3) && !dsc::is_floating(DSC_DTYPE_U8));
}

template <typename Body>
void expect_unsupported(const char* part, Body body) {
  std::string text;
  try {
    body();
  } catch (const dsc::Error& error) {
    assert_int_equal(error.code(), DSC_ERR_UNSUPPORTED);
    text = error.what();
  }
  if (text.find(part) == std::string::npos) fail_msg("expected '%s' in '%s'", part, text.c_str());
}

void refuses_what_it_cannot_do(void**) {
  uint64_t src[4] = {1, 2, 3, 4}, dst[4] = {9, 9, 9, 9};
  const void* srcs[] = {src};
  void* dsts[] = {dst};
  const auto reduce = [&](int32_t dtype, int32_t op, double prescale) {
    dsc::reduce({dtype, op, 1, prescale}, srcs, 1, dsts, 1, 1);
  };
  expect_unsupported("avg of i32", [&] { reduce(DSC_DTYPE_I32, DSC_OP_AVG, 1); });
  expect_unsupported("band of f32", [&] { reduce(DSC_DTYPE_F32, DSC_OP_BAND, 1); });
  expect_unsupported("bor of f8e4m3", [&] { reduce(DSC_DTYPE_F8E4M3, DSC_OP_BOR, 1); });
  expect_unsupported("avg of bool", [&] { reduce(DSC_DTYPE_BOOL, DSC_OP_AVG, 1); });
  expect_unsupported("unknown dtype", [&] { reduce(0, DSC_OP_SUM, 1); });
  expect_unsupported("unknown op", [&] { reduce(DSC_DTYPE_F32, 1000, 1); });
  expect_unsupported("got i64", [&] { reduce(DSC_DTYPE_I64, DSC_OP_SUM, 0.5); });
  expect_unsupported("got u8", [&] { dsc::divide(DSC_DTYPE_U8, dst, src, 1, 2); });
  expect_unsupported("got bool", [&] { dsc::multiply(DSC_DTYPE_BOOL, dst, src, 1, 2); });
  expect_unsupported("from f8e5m2 to f16", [&] { dsc::cast(DSC_DTYPE_F16, dst, DSC_DTYPE_F8E5M2, src, 1); });
  expect_unsupported("from bool to f32", [&] { dsc::cast(DSC_DTYPE_F32, dst, DSC_DTYPE_BOOL, src, 1); });
  expect_unsupported("from f64 to f16", [&] { dsc::cast(DSC_DTYPE_F16, dst, DSC_DTYPE_F64, src, 1); });
  for (const uint64_t value : dst) assert_int_equal(value, 9);
}

// A buffer between two pages that may not be touched. It starts right after the first page, or ends right
// before the second one.
class Fenced {
 public:
  explicit Fenced(size_t bytes, bool at_end) : bytes_(bytes) {
    assert_true(bytes <= kPage);
    base_ = static_cast<std::byte*>(mmap(nullptr, 3 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    assert_true(base_ != MAP_FAILED);
    assert_int_equal(mprotect(base_ + kPage, kPage, PROT_READ | PROT_WRITE), 0);
    std::fill_n(base_ + kPage, kPage, std::byte{0x55});
    data_ = at_end ? base_ + 2 * kPage - bytes : base_ + kPage;
  }
  ~Fenced() { munmap(base_, 3 * kPage); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  std::byte* data() const { return data_; }
  // Returns whether the rest of the page is unchanged.
  bool alone() const {
    const auto untouched = [](std::byte b) { return b == std::byte{0x55}; };
    return std::all_of(base_ + kPage, data_, untouched) &&
           std::all_of(data_ + bytes_, base_ + 2 * kPage, untouched);
  }

 private:
  static constexpr size_t kPage = 4096;
  const size_t bytes_;
  std::byte* base_;
  std::byte* data_;
};

// The array's last elements fill less than one vector.
void touches_nothing_beside_the_arrays(void**) {
  on_every_target([](const char*) {
    for (int32_t dtype = DSC_DTYPE_I8; dtype <= DSC_DTYPE_BOOL; ++dtype)
      for (size_t count = 1; count <= 70; ++count)
        for (const bool at_end : {false, true}) {
          const size_t bytes = count * dsc::dtype_bytes(dtype);
          const Fenced first(bytes, at_end), second(bytes, at_end), result(bytes, at_end);
          std::fill_n(first.data(), bytes, std::byte{1});
          std::fill_n(second.data(), bytes, std::byte{0});
          const void* sources[] = {first.data(), second.data()};
          void* targets[] = {result.data()};
          dsc::reduce({dtype, DSC_OP_MAX}, sources, 2, targets, 1, count);
          assert_memory_equal(result.data(), first.data(), bytes);
          assert_true(result.alone());
        }
  });
}

}  // namespace

int main(int, char** argv) {
  csv_path = argv[1];
  const CMUnitTest tests[] = {
      cmocka_unit_test(knows_types_and_operations),
      cmocka_unit_test(refuses_what_it_cannot_do),
      cmocka_unit_test(every_target_is_another_kernel),
      cmocka_unit_test(reduces_every_type_and_shape),
      cmocka_unit_test(scales_and_divides),
      cmocka_unit_test(helpers_match_the_reference),
      cmocka_unit_test(casts_exactly),
      cmocka_unit_test(casts_8_bit_floats_as_defined),
      cmocka_unit_test(casts_like_the_vectors),
      cmocka_unit_test(reduces_truth_values),
      cmocka_unit_test(copies_bytes),
      cmocka_unit_test(copies_bytes_at_all_distances_within_a_page),
      cmocka_unit_test(touches_nothing_beside_the_arrays),
      cmocka_unit_test(ignores_and_restores_the_floating_point_mode),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
