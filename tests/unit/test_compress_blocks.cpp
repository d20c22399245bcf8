// Quantization in blocks, compared with plain arithmetic bit for bit.
#include <algorithm>

#include "compress/blocks.hpp"
#include "compress_support.hpp"

namespace {

using support::Bytes;
using support::Floats;
using support::Kind;

constexpr float kMost = std::numeric_limits<float>::max();

// Returns the scale of one block by the documented rule. `2 * most` is computed in f64, where it cannot
// overflow.
float expected_scale(int bits, std::span<const float> block) {
  double most = 0;
  for (const float x : block) {
    if (!std::isfinite(x)) return std::numeric_limits<float>::quiet_NaN();
    most = std::max(most, std::fabs(static_cast<double>(x)));
  }
  const double scale = most == 0 ? 1 : std::ldexp(1, bits) / (2 * most);
  return scale > kMost ? kMost : static_cast<float>(scale);
}

int expected_number(int bits, float x, float scale) {
  if (std::isnan(scale)) return 0;
  const int limit = 1 << (bits - 1);
  return std::clamp(static_cast<int>(std::nearbyint(x * scale)), -limit, limit - 1);
}

int number(int bits, const Bytes& packed, size_t i) {
  if (bits == 8) return static_cast<int8_t>(packed[i]);
  const int half = i % 2 == 0 ? packed[i / 2] >> 4 : packed[i / 2] & 15;
  return half >= 8 ? half - 16 : half;
}

struct Quantised {
  Bytes packed;
  Floats scales, out, sum;
};

Quantised quantise(int bits, size_t block, const Floats& values, const Floats& before) {
  Quantised q;
  support::same_everywhere([&] {
    q = {Bytes(dsc::block_bytes(bits, values.size()), 0xa5), Floats((values.size() + block - 1) / block, 7),
         Floats(values.size(), 7), before};
    dsc::quantise_blocks(bits, block, values, q.packed, q.scales);
    dsc::dequantise_blocks(bits, block, q.packed, q.scales, q.out, false);
    dsc::dequantise_blocks(bits, block, q.packed, q.scales, q.sum, true);
    Bytes all = q.packed;
    for (const Floats* floats : {&q.scales, &q.out, &q.sum}) support::append(all, *floats);
    return all;
  });
  return q;
}

void check(int bits, size_t block, const Floats& values, const Floats& before) {
  const Quantised q = quantise(bits, block, values, before);
  for (size_t at = 0, b = 0; at < values.size(); at += block, ++b) {
    const auto part = std::span(values).subspan(at, std::min(block, values.size() - at));
    const float scale = expected_scale(bits, part), stored = 1 / scale;
    assert_true(support::same({&q.scales[b], 1}, {&stored, 1}));
    for (size_t i = at; i < at + part.size(); ++i) {
      const int n = number(bits, q.packed, i);
      assert_int_equal(n, expected_number(bits, values[i], scale));
      const float out = static_cast<float>(n) * stored, sum = before[i] + out;
      assert_true(support::same({&q.out[i], 1}, {&out, 1}));
      assert_true(support::same({&q.sum[i], 1}, {&sum, 1}));
      // A value with the largest code may be off by one step. All other values are rounded to the nearest
      // step.
      const double limit = (n == (1 << (bits - 1)) - 1 ? 1.001 : 0.5001) * stored;
      if (!std::isnan(stored)) assert_true(std::fabs(static_cast<double>(out) - values[i]) <= limit);
    }
  }
  if (bits == 4 && values.size() % 2 != 0) assert_int_equal(q.packed.back() & 15, 0);
}

void quantises_like_plain_arithmetic(void**) {
  std::mt19937_64 random(1);
  for (int i = 0; i < support::cases(); ++i) {
    const size_t count = random() % 300, block = 2 + random() % 70 * 2;
    const Kind kinds[] = {support::kFinite[random() % std::size(support::kFinite)], Kind::kSpecial};
    for (const int bits : {8, 4})
      for (const Kind kind : kinds)
        check(bits, block, support::random_floats(count, kind, random),
              support::random_floats(count, Kind::kNormal, random));
    check(8, 1 + random() % 7, support::random_floats(count, Kind::kNormal, random), Floats(count));
  }
}

// Blocks that have more elements than are packed in one go.
void quantises_large_blocks(void**) {
  std::mt19937_64 random(2);
  for (const int bits : {8, 4})
    for (const size_t count : {511, 512, 513, 1025, 5000})
      check(bits, 2048, support::random_floats(count, Kind::kNormal, random), Floats(count, 1));
}

void rounds_ties_to_even_and_clamps(void**) {
  const Floats values{8, -8, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.49999997f};
  const Quantised q = quantise(4, 8, values, Floats(8));
  assert_true(q.packed == Bytes({0x78, 0x02, 0x20, 0xe0}));
  assert_true(q.scales == Floats{1});
  assert_true(q.out == Floats({7, -8, 0, 2, 2, 0, -2, 0}));
}

void keeps_extremes_finite(void**) {
  for (const float x : {std::numeric_limits<float>::denorm_min(), 1e-39f, 1e-37f, kMost, kMost / 2})
    for (const int bits : {8, 4}) {
      const Quantised q = quantise(bits, 4, {x, -x, 0, x / 2}, Floats(4));
      for (const float out : q.out) assert_true(std::isfinite(out));
      assert_true(std::fabs(q.out[1] + x) <=
                  1e-6f * x + 1.5e-39f);  // for the largest scale one step is 2.9e-39
    }
}

void does_not_hide_infinity_and_nan(void**) {
  for (const float x : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN()})
    for (const int bits : {8, 4}) {
      const Quantised q = quantise(bits, 2, {1, 2, x, 4, 5, 6}, Floats(6));
      for (const size_t i : {0, 1, 4, 5}) assert_true(std::isfinite(q.out[i]));
      assert_true(std::isnan(q.out[2]) && std::isnan(q.out[3]) && std::isnan(q.sum[3]));
    }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(quantises_like_plain_arithmetic), cmocka_unit_test(quantises_large_blocks),
      cmocka_unit_test(rounds_ties_to_even_and_clamps),  cmocka_unit_test(keeps_extremes_finite),
      cmocka_unit_test(does_not_hide_infinity_and_nan),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
