// Tests the rows of RMSNorm: lengths, types, instruction sets and in-place use. Memory beside a row must not
// change.
#include <algorithm>
#include <cmath>

#include "compress_support.hpp"
#include "tensor_parallel/cross_entropy_rows.hpp"
#include "tensor_parallel/rms_norm_rows.hpp"

namespace {

using support::Bytes;

constexpr int32_t kTypes[] = {DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_BF16, DSC_DTYPE_F16};

// A row that begins at an odd element, with guard elements around it that must not change.
struct Row {
  Row(int32_t dtype_in, size_t count_in, uint64_t seed)
      : dtype(dtype_in), count(count_in), bytes((count_in + 2) * dsc::dtype_bytes(dtype_in), 0xa5) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(0, 2);
    for (size_t i = 0; i < count; ++i) dsc::set_element(dtype, data(), i, normal(random));
  }
  void* data() { return bytes.data() + dsc::dtype_bytes(dtype); }
  double at(size_t i) { return dsc::element_at(dtype, data(), i); }
  bool frame_is_untouched() const {
    const auto is_frame = [](uint8_t byte) { return byte == 0xa5; };
    const auto size = static_cast<std::ptrdiff_t>(dsc::dtype_bytes(dtype));
    return std::all_of(bytes.begin(), bytes.begin() + size, is_frame) &&
           std::all_of(bytes.end() - size, bytes.end(), is_frame);
  }

  int32_t dtype;
  size_t count;
  Bytes bytes;
};

// All arrays of one row. `form` selects which arrays are given, and which share memory.
struct Case {
  Case(int32_t dtype, size_t count)
      : sum(dtype, count, 1),
        residual(dtype, count, 2),
        weight(dtype, count, 3),
        kept(dtype, count, 4),
        out(dtype, count, 5),
        norm{dtype, count, 1e-5, weight.data()} {}

  void run() { dsc::normalize_row(norm, sum.data(), residual.data(), kept.data(), out.data()); }

  Row sum, residual, weight, kept, out;
  dsc::RmsNorm norm;
};

// Returns half a unit in the last place of a number of the type, relative to the number.
double rounding(int32_t dtype) {
  return dtype == DSC_DTYPE_F64    ? 0x1p-53
         : dtype == DSC_DTYPE_F32  ? 0x1p-24
         : dtype == DSC_DTYPE_BF16 ? 0x1p-8
                                   : 0x1p-11;
}

void near(double found, double expected, double relative, double least) {
  if (!(std::fabs(found - expected) <= relative * std::fabs(expected) + least))
    fail_msg("found %.17g, expected %.17g, at most %g of it away", found, expected, relative);
}

void check_case(int32_t dtype, size_t count) {
  Case it(dtype, count);
  it.run();
  assert_true(it.kept.frame_is_untouched() && it.out.frame_is_untouched());
  const double denormal = dtype == DSC_DTYPE_F16 ? 0x1p-25 : 0;
  double squares = 0;
  for (size_t i = 0; i < count; ++i) {
    near(it.kept.at(i), it.sum.at(i) + it.residual.at(i), rounding(dtype), denormal);
    squares += it.kept.at(i) * it.kept.at(i);
  }
  const double factor = 1 / std::sqrt(squares / static_cast<double>(count) + 1e-5);
  const double computed = dtype == DSC_DTYPE_F64 ? 0x1p-53 : 0x1p-24;
  const double bound = rounding(dtype) * 1.001 + computed * (static_cast<double>(count) / 128 + 8);
  for (size_t i = 0; i < count; ++i)
    near(it.out.at(i), it.kept.at(i) * factor * it.weight.at(i), bound, denormal);
}

void rows_of_all_lengths(void**) {
  support::on_every_target([&](const char*) {
    for (const int32_t dtype : kTypes)
      for (size_t count = 1; count < 200; ++count) check_case(dtype, count);
  });
}

// Where a caller may pass the same array twice, the result has the same bits.
void rows_in_place(void**) {
  support::on_every_target([&](const char*) {
    for (const int32_t dtype : kTypes)
      for (const size_t count : {1, 63, 64, 130}) {
        Case it(dtype, count);
        it.run();
        Case at_residual(dtype, count), at_sum(dtype, count);
        dsc::normalize_row(at_residual.norm, at_residual.sum.data(), at_residual.residual.data(),
                           at_residual.residual.data(), at_residual.sum.data());
        assert_true(at_residual.residual.bytes == it.kept.bytes && at_residual.sum.bytes == it.out.bytes);
        dsc::normalize_row(at_sum.norm, at_sum.sum.data(), at_sum.residual.data(), at_sum.sum.data(),
                           at_sum.sum.data());
        assert_true(at_sum.sum.bytes == it.out.bytes);
      }
  });
}

// Vector instructions give the same bits in every floating-point mode of the caller.
void the_same_bits_with_all_vectors(void**) {
  for (const int32_t dtype : kTypes) {
    const auto compute = [&] {
      Case it(dtype, 5003);
      for (const size_t at : {7, 2000}) dsc::set_element(dtype, it.weight.data(), at, std::nan(""));
      it.run();
      Bytes all = it.kept.bytes;
      all.insert(all.end(), it.out.bytes.begin(), it.out.bytes.end());
      return all;
    };
    const Bytes expected = compute();
    support::on_every_target([&](const char* target) {
      if (compute() != expected) fail_msg("%s gives other bits of type %d", target, dtype);
    });
#if defined(__x86_64__)
    const auto given = [&] { return Case(dtype, 5003); };
    Case plain = given(), other = given();
    plain.run();
    const unsigned before = _mm_getcsr();
    _mm_setcsr(0xffc0);  // rounds to zero, flushes denormals to zero
    other.run();
    _mm_setcsr(before);
    assert_true(plain.kept.bytes == other.kept.bytes && plain.out.bytes == other.out.bytes);
#endif
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(rows_of_all_lengths),
      cmocka_unit_test(rows_in_place),
      cmocka_unit_test(the_same_bits_with_all_vectors),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
