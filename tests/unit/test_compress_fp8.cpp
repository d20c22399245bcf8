// Scaled 8-bit floats, compared with plain arithmetic bit for bit.
#include <algorithm>

#include "compress/scaled_fp8.hpp"
#include "compress_support.hpp"

namespace {

using support::Bytes;
using support::Floats;
using support::Kind;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class Small>
uint8_t narrowed(float x, float most) {
  return Small::from(std::isnan(x) ? x : std::clamp(x, -most, most)).bits;
}

uint8_t expected_code(int32_t dtype, float x) {
  return dtype == DSC_DTYPE_F8E4M3 ? narrowed<reference::E4m3>(x, 448) : narrowed<reference::E5m2>(x, 57344);
}

float expected_value(int32_t dtype, uint8_t code) {
  return dtype == DSC_DTYPE_F8E4M3 ? reference::E4m3{code}.value() : reference::E5m2{code}.value();
}

void check_to(int32_t dtype, const Floats& values, float scale) {
  const Bytes codes = support::same_everywhere([&] {
    Bytes out(values.size(), 0xa5);
    dsc::to_fp8(dtype, values, scale, out);
    return out;
  });
  for (size_t i = 0; i < values.size(); ++i)
    if (codes[i] != expected_code(dtype, values[i] * scale))
      fail_msg("%g * %g becomes %x, expected %x", values[i], scale, codes[i],
               expected_code(dtype, values[i] * scale));
}

void check_from(int32_t dtype, const Bytes& codes, float scale, const Floats& before) {
  Floats out, sum;
  support::same_everywhere([&] {
    out.assign(codes.size(), 7);
    sum = before;
    dsc::from_fp8(dtype, codes, scale, out, false);
    dsc::from_fp8(dtype, codes, scale, sum, true);
    Bytes all = support::bits(out);
    support::append(all, sum);
    return all;
  });
  Floats expected_out(codes.size()), expected_sum = before;
  for (size_t i = 0; i < codes.size(); ++i) {
    expected_out[i] = expected_value(dtype, codes[i]) * scale;
    expected_sum[i] += expected_out[i];
  }
  assert_true(support::same(out, expected_out));
  assert_true(support::same(sum, expected_sum));
}

void converts_like_plain_arithmetic(void**) {
  std::mt19937_64 random(1);
  for (int i = 0; i < support::cases(); ++i) {
    const size_t count = random() % 200;
    Bytes codes(count);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
    const float scale =
        std::ldexp(support::random_float(Kind::kNormal, random), static_cast<int>(random() % 40) - 20);
    for (const int32_t dtype : {DSC_DTYPE_F8E4M3, DSC_DTYPE_F8E5M2}) {
      for (const Kind kind : {Kind::kNormal, Kind::kTiny, Kind::kHuge, Kind::kSpecial})
        check_to(dtype, support::random_floats(count, kind, random),
                 kind == Kind::kTiny ? scale * 1e38f : scale);
      check_from(dtype, codes, scale, support::random_floats(count, Kind::kNormal, random));
    }
  }
}

// Converts every code to f32. Converts back the number of every code, the midpoint between this number and
// the next one, and the floats just above and below the midpoint.
void converts_all_codes_and_borders(void**) {
  for (const int32_t dtype : {DSC_DTYPE_F8E4M3, DSC_DTYPE_F8E5M2}) {
    Bytes codes(256);
    Floats values;
    for (size_t c = 0; c < codes.size(); ++c) {
      codes[c] = static_cast<uint8_t>(c);
      const float value = expected_value(dtype, static_cast<uint8_t>(c));
      const float next = expected_value(dtype, static_cast<uint8_t>(c + 1));
      const float border = (value + next) / 2;
      for (const float x :
           {value, border, std::nextafter(border, kInfinity), std::nextafter(border, -kInfinity)})
        values.push_back(x);
    }
    check_from(dtype, codes, 1, Floats(codes.size(), 1));
    check_to(dtype, values, 1);
  }
}

void saturates_and_keeps_nan(void**) {
  const Floats values{kInfinity, -kInfinity, kNan, -kNan, 1e30f, -1e30f, 448,
                      449,       465,        -464, 57344, 65000, 0,      -0.0f};
  check_to(DSC_DTYPE_F8E4M3, values, 1);
  check_to(DSC_DTYPE_F8E5M2, values, 1);
  Bytes codes(values.size());
  dsc::to_fp8(DSC_DTYPE_F8E4M3, values, 1, codes);
  assert_true(codes ==
              Bytes({0x7e, 0xfe, 0x7f, 0x7f, 0x7e, 0xfe, 0x7e, 0x7e, 0x7e, 0xfe, 0x7e, 0x7e, 0, 0x80}));
  dsc::to_fp8(DSC_DTYPE_F8E5M2, values, 1, codes);
  assert_true(codes ==
              Bytes({0x7b, 0xfb, 0x7e, 0x7e, 0x7b, 0xfb, 0x5f, 0x5f, 0x5f, 0xdf, 0x7b, 0x7b, 0, 0x80}));
  check_to(DSC_DTYPE_F8E4M3, {kInfinity, 0, 1}, 0);  // infinity times 0 is NaN
}

void finds_the_largest_magnitude(void**) {
  std::mt19937_64 random(2);
  for (int i = 0; i < support::cases(); ++i) {
    const Kind kind = i % 6 == 5 ? Kind::kSpecial : support::kFinite[i % 6];
    const Floats values = support::random_floats(random() % 300, kind, random);
    float expected = 0, most = 0;
    for (const float x : values)
      expected = std::isnan(x) || std::isnan(expected) ? kNan : std::max(expected, std::fabs(x));
    support::same_everywhere([&] {
      most = dsc::max_magnitude(values);
      return support::bits({&most, 1});
    });
    assert_true(support::same({&most, 1}, {&expected, 1}));
  }
}

// One large or non-finite element must be found at every position.
void finds_it_at_every_position(void**) {
  for (const float x : {3.0f, -3.0f, kInfinity, -kInfinity, kNan, -kNan})
    for (size_t at = 0; at < 150; ++at) {
      Floats values(150, 1);
      values[at] = x;
      const float most = dsc::max_magnitude(values), expected = std::fabs(x);
      assert_true(support::same({&most, 1}, {&expected, 1}));
    }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(converts_like_plain_arithmetic), cmocka_unit_test(converts_all_codes_and_borders),
      cmocka_unit_test(saturates_and_keeps_nan),        cmocka_unit_test(finds_the_largest_magnitude),
      cmocka_unit_test(finds_it_at_every_position),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
