// Tests the rows of cross entropy: exponentials, sums of any length, types and instruction sets. Memory
// beside a row must not change.
#include <algorithm>
#include <bit>

#include "compress_support.hpp"
#include "tensor_parallel/cross_entropy_rows.hpp"

namespace {

using support::Bytes;

constexpr int32_t kTypes[] = {DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_BF16, DSC_DTYPE_F16};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A row that begins at element 1 of its memory, so that it is aligned to its elements only. The elements
// before and after it (the frame) must not change.
class Row {
 public:
  Row(int32_t dtype, const std::vector<double>& values)
      : dtype_(dtype), bytes_((values.size() + 2) * dsc::dtype_bytes(dtype), 0xa5), count_(values.size()) {
    for (size_t i = 0; i < count_; ++i) dsc::set_element(dtype, data(), i, values[i]);
  }
  void* data() { return bytes_.data() + dsc::dtype_bytes(dtype_); }
  double at(size_t i) { return dsc::element_at(dtype_, data(), i); }
  size_t count() const { return count_; }
  const Bytes& bytes() const { return bytes_; }
  bool frame_is_untouched() const {
    const auto is_frame = [](uint8_t byte) { return byte == 0xa5; };
    const auto size = static_cast<std::ptrdiff_t>(dsc::dtype_bytes(dtype_));
    return std::all_of(bytes_.begin(), bytes_.begin() + size, is_frame) &&
           std::all_of(bytes_.end() - size, bytes_.end(), is_frame);
  }

 private:
  int32_t dtype_;
  Bytes bytes_;
  size_t count_;
};

std::vector<double> random_values(size_t count, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0, 4);
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}

void near(long double found, long double expected, long double relative) {
  if (!(std::fabs(found - expected) <= relative * std::fabs(expected)))
    fail_msg("found %.20Lg, expected %.20Lg, at most %Lg of it away", found, expected, relative);
}

// The inputs go from 0 to about the lowest input whose exponential is a normal number. The step is not a
// round number.
void exponentials_are_accurate(void**) {
  const auto check = [](int32_t dtype, double lowest, double relative) {
    std::vector<double> values;
    for (double x = 0; x > lowest; x += lowest / 30011) values.push_back(x);
    support::on_every_target([&](const char*) {
      Row row(dtype, values), out(dtype, values);
      dsc::write_row_gradient(dtype, row.data(), row.count(), {0, 1, 0}, out.data());
      for (size_t i = 0; i < row.count(); ++i)
        near(out.at(i), std::exp(static_cast<long double>(row.at(i))), relative);
    });
  };
  check(DSC_DTYPE_F32, -86.9, 0x1p-21);  // the argument reduction alone causes up to 126 * 1.9e-9
  check(DSC_DTYPE_F64, -707.9, 0x1p-51);
}

void exponentials_at_the_ends(void**) {
  for (const int32_t dtype : {DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_BF16})
    support::on_every_target([&](const char*) {
      Row row(dtype, {0, -0.0, -1000, -kInfinity, std::nan("")}), out = row;
      dsc::write_row_gradient(dtype, row.data(), row.count(), {0, 1, 0}, out.data());
      assert_true(out.at(0) == 1 && out.at(1) == 1 && out.at(2) == 0 && out.at(3) == 0 &&
                  std::isnan(out.at(4)));
    });
}

// When a NaN with a payload of ones is rounded to bf16, a carry could reach its sign.
void a_factor_with_a_payload_stays_a_nan(void**) {
  const auto payload = std::bit_cast<double>(~uint64_t{0});
  support::on_every_target([&](const char*) {
    for (const int32_t dtype : kTypes) {
      Row row(dtype, std::vector<double>(67, -1.0)), out = row;
      dsc::write_row_gradient(dtype, row.data(), row.count(), {0, payload, 0}, out.data());
      for (size_t i = 0; i < row.count(); ++i) assert_true(std::isnan(out.at(i)));
    }
  });
}

void check_sums(int32_t dtype, size_t count, std::mt19937_64& random) {
  Row row(dtype, random_values(count, random));
  const Bytes before = row.bytes();
  const dsc::RowSums sums = dsc::sum_row(dtype, row.data(), count, true);
  long double max = -kInfinity, exp_sum = 0, sum = 0, magnitudes = 0;
  for (size_t i = 0; i < count; ++i) max = std::max<long double>(max, row.at(i));
  for (size_t i = 0; i < count; ++i) {
    exp_sum += std::exp(row.at(i) - max);
    sum += row.at(i);
    magnitudes += std::fabs(row.at(i));
  }
  // Up to 128 numbers are added to a running sum. Most of them are smaller than its last bits.
  const long double relative = dtype == DSC_DTYPE_F64 ? 0x1p-48 : 0x1p-19;
  assert_true(sums.max == static_cast<double>(max));
  near(sums.exp_sum, exp_sum, relative);
  assert_true(std::fabs(sums.sum - sum) <= relative * magnitudes);
  assert_true(row.bytes() == before);
  const dsc::RowSums without = dsc::sum_row(dtype, row.data(), count, false);
  assert_true(without.exp_sum == sums.exp_sum && without.sum == 0);
}

void rows_of_all_lengths(void**) {
  std::mt19937_64 random(1);
  std::vector<size_t> counts{2047, 2048, 2049, 4095, 4096, 5000};
  for (size_t count = 0; count < 70; ++count) counts.push_back(count);
  support::on_every_target([&](const char*) {
    for (const int32_t dtype : kTypes)
      for (const size_t count : counts) check_sums(dtype, count, random);
  });
}

// The gradient writes nothing beside its row. Computed in place of the row it has the same bits.
void gradients_stay_in_their_row(void**) {
  std::mt19937_64 random(2);
  support::on_every_target([&](const char*) {
    for (const int32_t dtype : kTypes)
      for (size_t count = 0; count < 70; ++count) {
        Row row(dtype, random_values(count, random)), out(dtype, std::vector<double>(count));
        const dsc::RowGradient gradient{20, 0.75, 0.125};
        dsc::write_row_gradient(dtype, row.data(), count, gradient, out.data());
        dsc::write_row_gradient(dtype, row.data(), count, gradient, row.data());
        assert_true(out.frame_is_untouched() && row.bytes() == out.bytes());
      }
  });
}

// Vector instructions give the same bits in every floating-point mode of the caller.
void the_same_bits_with_all_vectors(void**) {
  std::mt19937_64 random(3);
  for (const int32_t dtype : kTypes) {
    const Row given(dtype, random_values(5003, random));
    const auto compute = [&] {
      Row row = given;
      const dsc::RowSums sums = dsc::sum_row(dtype, row.data(), row.count(), true);
      dsc::write_row_gradient(dtype, row.data(), row.count(), {sums.max, 0.3, 0.1}, row.data());
      Bytes all = row.bytes();
      const auto* first = reinterpret_cast<const uint8_t*>(&sums);
      all.insert(all.end(), first, first + sizeof sums);
      return all;
    };
    const Bytes expected = compute();
    support::on_every_target([&](const char* target) {
      if (std::strcmp(target, hwy::TargetName(HWY_SCALAR)) != 0 && compute() != expected)
        fail_msg("%s gives other bits", target);
    });
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(0xffc0);  // rounds to zero, flushes denormals to zero
    const Bytes other = compute();
    _mm_setcsr(before);
    assert_true(other == expected);
#endif
  }
}

void masked_and_nonfinite(void**) {
  for (const int32_t dtype : kTypes)
    support::on_every_target([&](const char*) {
      std::vector<double> values(3000, -kInfinity);
      const auto sums = [&] {
        Row row(dtype, values);
        return dsc::sum_row(dtype, row.data(), row.count(), false);
      };
      assert_true(sums().max == -kInfinity && sums().exp_sum == 0);
      values[2999] = 2;  // all elements of the first block are still masked
      assert_true(sums().max == 2 && sums().exp_sum == 1);
      values[10] = kInfinity;
      assert_true(sums().max == kInfinity && std::isnan(sums().exp_sum));
      for (const size_t at : {0, 10, 2047, 2048, 2998}) {
        values.assign(3000, -1);
        values[at] = std::nan("");
        assert_true(std::isnan(sums().exp_sum) && !std::isnan(sums().max));
      }
    });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(exponentials_are_accurate),
      cmocka_unit_test(exponentials_at_the_ends),
      cmocka_unit_test(a_factor_with_a_payload_stays_a_nan),
      cmocka_unit_test(rows_of_all_lengths),
      cmocka_unit_test(gradients_stay_in_their_row),
      cmocka_unit_test(the_same_bits_with_all_vectors),
      cmocka_unit_test(masked_and_nonfinite),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
