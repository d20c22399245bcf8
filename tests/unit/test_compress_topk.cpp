// Selection of the largest elements, compared with sorting.
#include <algorithm>
#include <numeric>

#include "compress/topk.hpp"
#include "compress_support.hpp"

namespace {

using support::Floats;
using support::Kind;
using Indices = std::vector<uint32_t>;

Indices sorted_top_k(const Floats& values, size_t k) {
  Indices indices(values.size());
  std::iota(indices.begin(), indices.end(), 0u);
  std::stable_sort(indices.begin(), indices.end(), [&](uint32_t a, uint32_t b) {
    if (std::isnan(values[a]) || std::isnan(values[b]))
      return std::isnan(values[a]) && !std::isnan(values[b]);
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  indices.resize(k);
  std::sort(indices.begin(), indices.end());
  return indices;
}

void check(const Floats& values, size_t k) {
  Indices indices;
  support::same_everywhere([&] {
    indices.assign(k, 0xffffffff);
    dsc::select_top_k(values, indices);
    const auto* first = reinterpret_cast<const uint8_t*>(indices.data());
    return support::Bytes(first, first + k * sizeof(uint32_t));
  });
  if (indices != sorted_top_k(values, k)) fail_msg("wrong: %zu of %zu", k, values.size());
}

void selects_like_sorting(void**) {
  std::mt19937_64 random(1);
  for (int i = 0; i < support::cases(); ++i) {
    const size_t count = random() % 400, k = random() % (count + 1);
    for (const Kind kind : support::kFinite) check(support::random_floats(count, kind, random), k);
    check(support::random_floats(count, Kind::kSpecial, random), k);
  }
}

// The values agree in their high bits, so that every digit of the search matters.
void selects_among_close_values(void**) {
  std::mt19937_64 random(2);
  for (const uint32_t range : {1u, 4u, 1u << 10, 1u << 12, 1u << 20, 1u << 22}) {
    Floats values(20000);
    for (float& value : values) {
      const auto bits =
          static_cast<uint32_t>(0x3f7ffe00 + random() % range) | static_cast<uint32_t>(random() % 2) << 31;
      std::memcpy(&value, &bits, sizeof value);
    }
    for (const size_t k : {0, 1, 2, 63, 64, 200, 10000, 19999, 20000}) check(values, k);
  }
}

// The search samples large arrays first. The arrays include some whose samples are representative and some
// whose samples mislead.
void selects_from_many(void**) {
  std::mt19937_64 random(3);
  constexpr size_t kCount = 70000, kSampleStep = kCount / 4096;
  for (const Kind kind : {Kind::kNormal, Kind::kFew, Kind::kZeros, Kind::kSpecial}) {
    const Floats values = support::random_floats(kCount, kind, random);
    for (const size_t k : {1, 70, 700, 7000, 40000}) check(values, k);
  }
  for (const float sampled : {0.0f, 9.0f}) {
    Floats values = support::random_floats(kCount, Kind::kNormal, random);
    for (size_t i = 0; i < kCount; i += kSampleStep) values[i] = sampled;
    for (const size_t k : {1, 700, 7000}) check(values, k);
  }
}

void ties_go_to_the_lower_index(void**) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  float other_nan = -nan;
  const uint32_t payload = 0x7fc12345;
  std::memcpy(&other_nan, &payload, sizeof payload);
  const Floats values{1, -2, 2, nan, -infinity, other_nan, 2, 0, -0.0f};
  const std::vector<Indices> expected{{},
                                      {3},
                                      {3, 5},
                                      {3, 4, 5},
                                      {1, 3, 4, 5},
                                      {1, 2, 3, 4, 5},
                                      {1, 2, 3, 4, 5, 6},
                                      {0, 1, 2, 3, 4, 5, 6},
                                      {0, 1, 2, 3, 4, 5, 6, 7}};
  for (size_t k = 0; k < expected.size(); ++k) {
    Indices indices(k);
    dsc::select_top_k(values, indices);
    assert_true(indices == expected[k]);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(selects_like_sorting),
      cmocka_unit_test(selects_among_close_values),
      cmocka_unit_test(selects_from_many),
      cmocka_unit_test(ties_go_to_the_lower_index),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
