// The parts of PowerSGD, compared with plain arithmetic in f64.
#include <algorithm>
#include <bit>

#include "compress/powersgd.hpp"
#include "compress_support.hpp"

namespace {

using support::Bytes;
using support::Floats;
using support::Kind;

struct Shape {
  size_t rows, columns, rank;
};

// A matrix product and, for each element, the sum of the magnitudes of its terms.
struct Exact {
  std::vector<double> values, magnitudes;

  explicit Exact(size_t count) : values(count), magnitudes(count) {}
  void add(size_t at, float a, float b) {
    values[at] += static_cast<double>(a) * b;
    magnitudes[at] += std::fabs(static_cast<double>(a) * b);
  }
  // Whole numbers are not rounded, so the result must be exact.
  void check(const Floats& got, bool whole) const {
    for (size_t i = 0; i < got.size(); ++i)
      if (!(std::fabs(got[i] - values[i]) <= (whole ? 0 : 4e-6 * magnitudes[i] + 1e-44)))
        fail_msg("element %zu is %.9g, expected %.9g", i, got[i], values[i]);
  }
};

void check_products(const Shape& shape, Kind kind, std::mt19937_64& random) {
  const size_t rows = shape.rows, columns = shape.columns, rank = shape.rank;
  const Floats m = support::random_floats(rows * columns, kind, random);
  const Floats q = support::random_floats(columns * rank, kind, random);
  const Floats p = support::random_floats(rows * rank, kind, random);
  Exact p_exact(rows * rank), q_exact(columns * rank), m_exact(rows * columns);
  for (size_t i = 0; i < rows; ++i)
    for (size_t c = 0; c < columns; ++c)
      for (size_t k = 0; k < rank; ++k) {
        p_exact.add(i * rank + k, m[i * columns + c], q[c * rank + k]);
        q_exact.add(c * rank + k, m[i * columns + c], p[i * rank + k]);
        m_exact.add(i * columns + c, p[i * rank + k], q[c * rank + k]);
      }
  Floats p_got, q_got, m_got;
  support::same_everywhere([&] {
    p_got.assign(p.size(), 7);
    q_got.assign(q.size(), 7);
    m_got.assign(m.size(), 7);
    dsc::multiply(m.data(), q.data(), p_got.data(), rows, columns, rank);
    dsc::multiply_transposed(m.data(), p.data(), q_got.data(), rows, columns, rank);
    dsc::approximate(p.data(), q.data(), m_got.data(), rows, columns, rank);
    Bytes all = support::bits(p_got);
    support::append(all, q_got);
    support::append(all, m_got);
    return all;
  });
  const bool whole = kind == Kind::kFew;
  p_exact.check(p_got, whole);
  q_exact.check(q_got, whole);
  m_exact.check(m_got, whole);
}

void multiplies_like_plain_arithmetic(void**) {
  std::mt19937_64 random(1);
  for (int i = 0; i < support::cases(); ++i) {
    const Shape shape{random() % 30, random() % 80, random() % 10};
    const Kind kinds[] = {Kind::kNormal, Kind::kFew, Kind::kTiny};
    check_products(shape, kinds[i % 3], random);
  }
}

// Sizes just below and above the size of a panel.
void multiplies_in_panels(void**) {
  std::mt19937_64 random(2);
  for (const size_t columns : {2047, 2048, 2049, 2063, 4096, 5001})
    for (const Kind kind : {Kind::kNormal, Kind::kFew}) check_products({9, columns, 5}, kind, random);
  check_products({3000, 33, 4}, Kind::kNormal, random);
}

void a_nan_stays_visible(void**) {
  Floats m(20 * 20, 1), q(20, 1), p(20, 1), out(20);
  m[7 * 20 + 3] = std::numeric_limits<float>::quiet_NaN();
  dsc::multiply(m.data(), q.data(), out.data(), 20, 20, 1);
  for (size_t i = 0; i < 20; ++i) assert_int_equal(std::isnan(out[i]), i == 7);
  dsc::multiply_transposed(m.data(), p.data(), out.data(), 20, 20, 1);
  for (size_t i = 0; i < 20; ++i) assert_int_equal(std::isnan(out[i]), i == 3);

  // An infinity in one panel must not reach the next panel, which is narrower.
  m.assign(2053, 1);
  q.assign(2053, 0);
  q[10] = std::numeric_limits<float>::infinity();
  dsc::multiply(m.data(), q.data(), out.data(), 1, 2053, 1);
  assert_true(out[0] == q[10]);
}

void multiplies_nothing(void**) {
  float one = 7;
  dsc::multiply(nullptr, nullptr, nullptr, 0, 5, 0);
  dsc::multiply(nullptr, nullptr, &one, 1, 0, 1);
  assert_true(one == 0);
  one = 7;
  dsc::multiply_transposed(nullptr, nullptr, &one, 0, 1, 1);
  assert_true(one == 0);
  one = 7;
  dsc::approximate(nullptr, nullptr, &one, 1, 1, 0);
  assert_true(one == 0);
}

Floats orthogonal(const Floats& matrix, size_t rows, size_t columns, float epsilon) {
  Floats result;
  support::same_everywhere([&] {
    result = matrix;
    dsc::orthogonalise(result.data(), rows, columns, epsilon);
    return support::bits(result);
  });
  return result;
}

// Orthogonalizes the columns by PyTorch's loop, in f64.
std::vector<double> plain_orthogonal(const Floats& matrix, size_t rows, size_t columns, double epsilon) {
  std::vector<double> a(matrix.begin(), matrix.end());
  for (size_t c = 0; c < columns; ++c) {
    double norm = 0;
    for (size_t r = 0; r < rows; ++r) norm += a[r * columns + c] * a[r * columns + c];
    for (size_t r = 0; r < rows; ++r) a[r * columns + c] /= std::sqrt(norm) + epsilon;
    for (size_t later = c + 1; later < columns; ++later) {
      double dot = 0;
      for (size_t r = 0; r < rows; ++r) dot += a[r * columns + c] * a[r * columns + later];
      for (size_t r = 0; r < rows; ++r) a[r * columns + later] -= dot * a[r * columns + c];
    }
  }
  return a;
}

// There are four times as many rows as columns, so that no column is nearly a sum of others.
void orthogonalises_like_plain_arithmetic(void**) {
  std::mt19937_64 random(3);
  for (int i = 0; i < support::cases(); ++i) {
    const size_t columns = 1 + random() % 8, rows = 8 + columns * (4 + random() % 8);
    const Floats matrix = support::random_floats(rows * columns, Kind::kNormal, random);
    const float epsilon = i % 2 == 0 ? 0 : 1e-3f;
    const Floats got = orthogonal(matrix, rows, columns, epsilon);
    const auto expected = plain_orthogonal(matrix, rows, columns, epsilon);
    for (size_t e = 0; e < got.size(); ++e) assert_true(std::fabs(got[e] - expected[e]) < 2e-6);
  }
}

void columns_are_orthogonal(void**) {
  std::mt19937_64 random(4);
  constexpr size_t kRows = 1000, kColumns = 16;
  const Floats q =
      orthogonal(support::random_floats(kRows * kColumns, Kind::kNormal, random), kRows, kColumns, 0);
  for (size_t a = 0; a < kColumns; ++a)
    for (size_t b = 0; b <= a; ++b) {
      double dot = 0;
      for (size_t r = 0; r < kRows; ++r)
        dot += static_cast<double>(q[r * kColumns + a]) * q[r * kColumns + b];
      assert_true(std::fabs(dot - (a == b ? 1 : 0)) < 1e-6);
    }
}

void special_columns(void**) {
  const float tiny = std::numeric_limits<float>::denorm_min(), most = std::numeric_limits<float>::max();
  for (const float epsilon : {0.0f, 1e-8f}) {
    const Floats got = orthogonal({0, 3, 3, 0, 4, 4}, 2, 3, epsilon);
    assert_true(got[0] == 0 && got[3] == 0);
    assert_true(std::fabs(got[1] - 0.6f) < 1e-6f && std::fabs(got[4] - 0.8f) < 1e-6f);
    for (const float x : got) assert_true(std::isfinite(x));
  }
  assert_true(orthogonal({tiny, 0}, 2, 1, 0) == Floats({1, 0}));
  const Floats large = orthogonal({most, -most}, 2, 1, 0);
  assert_true(std::fabs(large[0] - 0.70710678f) < 1e-6f && large[1] == -large[0]);
  const Floats lost = orthogonal({1, std::numeric_limits<float>::infinity()}, 2, 1, 0);
  assert_true(std::isnan(lost[1]));
  dsc::orthogonalise(nullptr, 0, 0, 0);
}

// The expected numbers are from the same formula in Python.
void normal_numbers_are_the_same_everywhere(void**) {
  const struct {
    uint64_t seed;
    uint32_t bits[6];
  } known[] = {{0, {0xbee7cfdd, 0x3e54c09f, 0x4029a387, 0xbefb18b3, 0xbf7d1529, 0x3fefa105}},
               {1, {0xbce76c03, 0xbf886629, 0xbe6963bc, 0x3daa2d47, 0x3dd32159, 0xbfa28449}},
               {uint64_t{1} << 63, {0x3e311e2c, 0xbfca89d2, 0xbf4df052, 0x3f90d6f8, 0xbf4c78cf, 0x4014a997}}};
  for (const auto& numbers : known)
    for (size_t count = 0; count <= 6; ++count) {
      Floats values(count + 1, 7);
      support::same_everywhere([&] {
        dsc::fill_normal(numbers.seed, std::span(values).first(count));
        return support::bits(values);
      });
      for (size_t i = 0; i < count; ++i)
        assert_int_equal(std::bit_cast<uint32_t>(values[i]), numbers.bits[i]);
      assert_true(values[count] == 7);
    }
}

void normal_numbers_are_normal(void**) {
  constexpr size_t kCount = 1000000;
  Floats values(kCount);
  dsc::fill_normal(5, values);
  double moments[5] = {};
  size_t within_one = 0, beyond_three = 0;
  for (const float x : values) {
    for (int power = 1; power <= 4; ++power) moments[power] += std::pow(x, power) / kCount;
    within_one += std::fabs(x) < 1 ? 1 : 0;
    beyond_three += std::fabs(x) > 3 ? 1 : 0;
  }
  assert_true(std::fabs(moments[1]) < 0.005 && std::fabs(moments[2] - 1) < 0.007);
  assert_true(std::fabs(moments[3]) < 0.02 && std::fabs(moments[4] - 3) < 0.05);
  assert_true(std::fabs(static_cast<double>(within_one) / kCount - 0.682689) < 0.003);
  assert_true(std::fabs(static_cast<double>(beyond_three) / kCount - 0.0027) < 0.0003);
}

void is_worth_it_like_pytorch(void**) {
  assert_true(dsc::is_worth_compressing(100, 100, 1, 2));
  assert_true(dsc::is_worth_compressing(100, 100, 24, 2));
  // not worth it: the compressed size equals the size of the original
  assert_false(dsc::is_worth_compressing(100, 100, 25, 2));
  assert_false(dsc::is_worth_compressing(1, 1000, 1, 1));
  assert_false(dsc::is_worth_compressing(0, 0, 1, 2));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(multiplies_like_plain_arithmetic),
      cmocka_unit_test(multiplies_in_panels),
      cmocka_unit_test(a_nan_stays_visible),
      cmocka_unit_test(multiplies_nothing),
      cmocka_unit_test(orthogonalises_like_plain_arithmetic),
      cmocka_unit_test(columns_are_orthogonal),
      cmocka_unit_test(special_columns),
      cmocka_unit_test(normal_numbers_are_the_same_everywhere),
      cmocka_unit_test(normal_numbers_are_normal),
      cmocka_unit_test(is_worth_it_like_pytorch),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
