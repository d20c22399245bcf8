// Partitions of layers: recorded results of DeepSpeed, every partition of small lists, and properties of
// large lists.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "dsc/dsc.h"
#include "json.hpp"
#include "repetitions.h"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using Weights = std::vector<double>;
using Bytes = std::vector<uint64_t>;
using Boundaries = std::vector<size_t>;

std::string vectors_path;

struct Limits {
  Bytes layers;
  Bytes parts;
};

struct Result {
  dsc_result_t code;
  Boundaries boundaries;
};

Result partition(const char* method, const Weights& weights, size_t parts, const Limits& limits = {}) {
  dsc_pipe_partition_options_t options;
  assert_int_equal(dsc_pipe_partition_options_init(&options, sizeof options), DSC_OK);
  options.method = method;
  options.layer_bytes = limits.layers.empty() ? nullptr : limits.layers.data();
  options.part_limits = limits.parts.empty() ? nullptr : limits.parts.data();
  options.n_part_limits = limits.parts.size();
  Boundaries boundaries(parts + 1, 99);
  const auto code = dsc_pipe_partition(weights.data(), weights.size(), parts, &options, boundaries.data());
  return {code, boundaries};
}

Boundaries boundaries(const char* method, const Weights& weights, size_t parts, const Limits& limits = {}) {
  const Result result = partition(method, weights, parts, limits);
  if (result.code != DSC_OK) fail_msg("%s", dsc_last_error_message());
  return result.boundaries;
}

std::string text(const Boundaries& boundaries) { return support::Json(boundaries).dump(); }

void expect(const Boundaries& found, const Boundaries& expected) {
  assert_string_equal(text(found).c_str(), text(expected).c_str());
}

Weights part_weights(const Weights& weights, const Boundaries& boundaries) {
  Weights parts;
  for (size_t p = 0; p + 1 < boundaries.size(); ++p) {
    double sum = 0;
    for (size_t i = boundaries[p]; i < boundaries[p + 1]; ++i) sum += weights[i];
    parts.push_back(sum);
  }
  return parts;
}

Weights heaviest_first(const Weights& weights, const Boundaries& boundaries) {
  Weights parts = part_weights(weights, boundaries);
  std::sort(parts.rbegin(), parts.rend());
  return parts;
}

// ---- recorded results ----

void is_as_deepspeed(void**) {
  std::ifstream file(vectors_path);
  assert_true(file.is_open());
  size_t cases = 0;
  for (std::string line; std::getline(file, line);) {
    const auto json = support::Json::parse(line);
    if (json.contains("_meta")) continue;
    const bool uniform = json["fn"] == "uniform";
    const Weights weights =
        uniform ? Weights(json["num_items"].get<size_t>(), 1.0) : json["weights"].get<Weights>();
    const auto parts = json["num_parts"].get<size_t>();
    expect(boundaries(uniform ? "uniform" : "deepspeed_balanced", weights, parts),
           json["new"].get<Boundaries>());
    expect(boundaries(uniform ? "uniform_v0" : "deepspeed_balanced_v0", weights, parts),
           json["old"].get<Boundaries>());
    ++cases;
  }
  assert_in_range(cases, 100, SIZE_MAX);
}

const Weights kAlexNet{23296, 0, 0, 307392, 0, 0,        663936, 0, 884992,   0, 590080,
                       0,     0, 0, 0,      0, 37752832, 0,      0, 16781312, 0, 40970};

Weights bert() {
  Weights weights(24, 12596224);
  weights.insert(weights.begin(), 52559872);
  weights.insert(weights.end(), {0, 52559872});
  return weights;
}

void partitions_known_models(void**) {
  expect(boundaries("bottleneck", kAlexNet, 2), {0, 19, 22});
  expect(boundaries("deepspeed_balanced", kAlexNet, 2), {0, 19, 22});
  expect(boundaries("deepspeed_balanced", kAlexNet, 4), {0, 8, 16, 19, 22});
  expect(boundaries("deepspeed_balanced_v0", kAlexNet, 4), {0, 16, 19, 22, 22});
  for (const char* method : {"deepspeed_balanced", "deepspeed_balanced_v0"}) {
    expect(boundaries(method, bert(), 8), {0, 1, 5, 9, 13, 17, 21, 26, 27});
    expect(boundaries(method, bert(), 4), {0, 5, 13, 21, 27});
    expect(boundaries(method, bert(), 2), {0, 13, 27});
    expect(boundaries(method, {0, 1, 2, 3, 3, 3}, 4), {0, 3, 4, 5, 6});
    expect(boundaries(method, {1, 1}, 4), {0, 1, 2, 2, 2});
  }
  expect(boundaries("deepspeed_balanced", {0, 1.1, 1.9, 3, 30}, 2), {0, 4, 5});
  expect(boundaries("uniform", Weights(10), 4), {0, 3, 6, 8, 10});
  expect(boundaries("uniform_v0", Weights(10), 4), {0, 2, 4, 6, 10});
  expect(boundaries("uniform", {}, 2), {0, 0, 0});
}

void takes_zeros_as_deepspeed_does(void**) {
  expect(boundaries("deepspeed_balanced_v0", Weights(5, 0.0), 2), {0, 0, 5});
  expect(boundaries("deepspeed_balanced", Weights(5, 0.0), 2), {0, 4, 5});
  expect(boundaries("bottleneck", Weights(5, 0.0), 2), {0, 4, 5});
}

// The steps of the old search can be so small, compared with these weights, that rounding removes them. The
// search must still end.
void the_old_search_ends(void**) {
  for (const double unit : {1e-6, 1.0, 1e9, 1e17, 1e30, 1e300}) {
    const Boundaries found = boundaries("deepspeed_balanced_v0", {unit, 2 * unit, 3 * unit, 4 * unit}, 2);
    assert_int_equal(found.back(), 4);
  }
}

// ---- every partition ----

uint64_t limit_of(const Limits& limits, size_t part) {
  return limits.parts.size() == 1 ? limits.parts[0] : limits.parts[part];
}

bool keeps(const Limits& limits, const Boundaries& boundaries) {
  if (limits.parts.empty()) return true;
  for (size_t p = 0; p + 1 < boundaries.size(); ++p) {
    uint64_t sum = 0;
    for (size_t i = boundaries[p]; i < boundaries[p + 1]; ++i) sum += limits.layers[i];
    if (sum > limit_of(limits, p)) return false;
  }
  return true;
}

void for_each_partition(size_t layers, size_t parts, const std::function<void(const Boundaries&)>& see) {
  Boundaries boundaries(parts + 1, layers);
  boundaries[0] = 0;
  const std::function<void(size_t)> place = [&](size_t p) {
    if (p == parts) return see(boundaries);
    for (size_t i = boundaries[p - 1] + 1; i <= layers - (parts - p); ++i) {
      boundaries[p] = i;
      place(p + 1);
    }
  };
  place(1);
}

std::optional<Boundaries> best_of_all(const Weights& weights, size_t parts, const Limits& limits) {
  std::optional<Boundaries> best;
  for_each_partition(weights.size(), parts, [&](const Boundaries& boundaries) {
    if (!keeps(limits, boundaries)) return;
    if (best) {
      const Weights mine = heaviest_first(weights, boundaries);
      const Weights others = heaviest_first(weights, *best);
      const bool later =
          std::lexicographical_compare(best->rbegin(), best->rend(), boundaries.rbegin(), boundaries.rend());
      if (mine > others || (mine == others && !later)) return;
    }
    best = boundaries;
  });
  return best;
}

class Random {
 public:
  size_t below(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(engine_); }
  Weights weights(size_t n, size_t kinds) {
    Weights result;
    for (size_t i = 0; i < n; ++i) result.push_back(static_cast<double>(below(kinds)));
    if (below(4) == 0) result[below(n)] *= 50;
    return result;
  }
  Bytes bytes(size_t n, size_t bound) {
    Bytes result;
    for (size_t i = 0; i < n; ++i) result.push_back(below(bound));
    return result;
  }

 private:
  std::mt19937_64 engine_{20240607};
};

void check_against_all(const Weights& weights, size_t parts, const Limits& limits) {
  const auto best = best_of_all(weights, parts, limits);
  const Result found = partition("bottleneck", weights, parts, limits);
  if (best) {
    if (found.code != DSC_OK || found.boundaries != *best)
      fail_msg("weights %s, limits %s of %s: found %s (%d), expected %s",
               support::Json(weights).dump().c_str(), support::Json(limits.parts).dump().c_str(),
               support::Json(limits.layers).dump().c_str(), text(found.boundaries).c_str(), found.code,
               text(*best).c_str());
    return;
  }
  assert_int_equal(found.code, DSC_ERR_INVALID_ARG);
  const char* message = dsc_last_error_message();
  if (!std::strstr(message, ": part ") && !std::strstr(message, ": layer ")) fail_msg("%s", message);
}

void the_bottleneck_method_is_exact(void**) {
  Random random;
  const int rounds = test_repetitions(6000, 300);
  for (int round = 0; round < rounds; ++round) {
    const size_t n = 1 + random.below(11);
    const size_t parts = 1 + random.below(n);
    check_against_all(random.weights(n, 1 + random.below(9)), parts, {});
  }
}

void it_is_exact_within_limits(void**) {
  Random random;
  const int rounds = test_repetitions(6000, 300);
  for (int round = 0; round < rounds; ++round) {
    const size_t n = 1 + random.below(9);
    const size_t parts = 1 + random.below(n);
    const size_t most = 1 + random.below(12);
    Limits limits{random.bytes(n, most), {}};
    const size_t given = random.below(2) == 0 ? 1 : parts;
    for (size_t p = 0; p < given; ++p) limits.parts.push_back(random.below(2 * most * n / parts + 1));
    check_against_all(random.weights(n, 1 + random.below(9)), parts, limits);
  }
}

// ---- large lists ----

bool fits_below(const Weights& weights, size_t parts, double bottleneck) {
  size_t used = 1;
  double sum = 0;
  for (const double weight : weights) {
    if (weight > bottleneck) return false;
    if (sum + weight > bottleneck) {
      sum = 0;
      ++used;
    }
    sum += weight;
  }
  return used <= parts;
}

// With limits that differ by part, the search uses another algorithm.
Limits loose_limits(size_t layers, size_t parts) {
  Limits limits{Bytes(layers, 1), Bytes(parts, layers)};
  limits.parts[0] = layers + 1;
  return limits;
}

void large_lists_are_cut_well(void**) {
  Random random;
  const int rounds = test_repetitions(300, 30);
  for (int round = 0; round < rounds; ++round) {
    const size_t n = 20 + random.below(180);
    const size_t parts = 1 + random.below(20);
    const Weights weights = random.weights(n, 1 + random.below(30));
    const Boundaries found = boundaries("bottleneck", weights, parts);
    assert_int_equal(found.front(), 0);
    assert_int_equal(found.back(), n);
    assert_true(std::ranges::adjacent_find(found, std::greater_equal<>()) == found.end());
    const double heaviest = heaviest_first(weights, found).front();
    assert_true(fits_below(weights, parts, heaviest));
    if (heaviest > 0) assert_false(fits_below(weights, parts, heaviest - 0.5));
    expect(boundaries("bottleneck", weights, parts, loose_limits(n, parts)), found);
  }
}

void is_never_heavier_than_deepspeed(void**) {
  Random random;
  const int rounds = test_repetitions(300, 30);
  for (int round = 0; round < rounds; ++round) {
    const size_t n = 10 + random.below(60);
    const Weights weights = random.weights(n, 40);
    const size_t parts = 1 + random.below(9);
    const Weights best = heaviest_first(weights, boundaries("bottleneck", weights, parts));
    for (const char* method : {"uniform", "deepspeed_balanced"})
      assert_true(best <= heaviest_first(weights, boundaries(method, weights, parts)));
  }
}

void large_lists_are_cut_fast(void**) {
  Random random;
  const size_t n = 10000;
  const size_t parts = 128;
  Weights mixed = random.weights(n, 1000);
  Weights giants = random.weights(n, 1000);
  for (size_t i = 0; i < 20; ++i) giants[i * 400] = 1e7;
  const std::vector<std::pair<const char*, Weights>> lists{
      {"equal", Weights(n, 1.0)},       {"zeros", Weights(n, 0.0)},       {"random", mixed},
      {"0 or 1", random.weights(n, 2)}, {"0 to 2", random.weights(n, 3)}, {"giants", giants}};
  for (const auto& [name, weights] : lists) {
    const auto start = std::chrono::steady_clock::now();
    boundaries("bottleneck", weights, parts);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    print_message("bottleneck, %zu layers (%s), %zu parts: %.3f s\n", n, name, parts, seconds.count());
    assert_true(seconds.count() < 20);
  }
}

// ---- errors ----

void expect_refusal(const Result& result, dsc_result_t code, const char* words) {
  assert_int_equal(result.code, code);
  if (!std::strstr(dsc_last_error_message(), words))
    fail_msg("expected '%s' in: %s", words, dsc_last_error_message());
  for (const size_t boundary : result.boundaries) assert_int_equal(boundary, 99);
}

void refuses_what_is_wrong(void**) {
  const auto invalid = [](const Result& result, const char* words) {
    expect_refusal(result, DSC_ERR_INVALID_ARG, words);
  };
  invalid(partition("even", {1, 2}, 2), "unknown method 'even'; expected one of: bottleneck, uniform");
  invalid(partition("bottleneck", {1, 2}, 3),
          "there are 2 layers and 3 parts, expected at least one layer for each");
  invalid(partition("bottleneck", {1, -2}, 2), "weights[1] is -2, expected a finite number of 0 or more");
  invalid(partition("deepspeed_balanced", {NAN, 1, 1}, 2), "weights[0] is nan");
  invalid(partition("bottleneck", {1, 2}, 0), "there are 0 parts, expected 1 to 2147483647");
  invalid(partition("uniform", {1, 2}, 2, {{1, 1}, {5}}),
          "options->method is 'uniform', which supports no memory limits");
  invalid(partition("bottleneck", {1, 2}, 2, {{}, {5}}),
          "options->part_limits is set, but options->layer_bytes is not");
  invalid(partition("bottleneck", {1, 2}, 2, {{1, 1}, {}}),
          "options->layer_bytes is set, but options->part_limits is not");
  invalid(partition("bottleneck", {1, 2, 3}, 3, {{1, 1, 1}, {5, 5}}),
          "options->n_part_limits is 2, expected 1");
  expect_refusal(partition("bottleneck", {1e308, 1e308}, 2), DSC_ERR_OVERFLOW, "the sum of weights");
  expect_refusal(partition("bottleneck", {1, 2}, 2, {{UINT64_MAX, 1}, {5}}), DSC_ERR_OVERFLOW,
                 "the sum of options->layer_bytes up to layer 1 does not fit");
  expect_refusal(partition("bottleneck", Weights(20000, 1), 1000), DSC_ERR_OVERFLOW,
                 "expected a product of at most 2^24");
}

void says_which_part_cannot_hold_its_layers(void**) {
  const auto invalid = [](const Weights& weights, size_t parts, const Limits& limits, const char* words) {
    expect_refusal(partition("bottleneck", weights, parts, limits), DSC_ERR_INVALID_ARG, words);
  };
  invalid({1, 1, 1}, 1, {{5, 5, 5}, {14}},
          "part 0 cannot hold all 3 layers: they have 15 bytes, and the limit of this part is 14 bytes");
  invalid({1, 1, 1}, 2, {{5, 50, 5}, {20}},
          "layer 1 has 50 bytes, more than the largest limit of a part (20)");
  invalid({1, 1, 1, 1}, 2, {{5, 5, 5, 5}, {9}},
          "part 1 cannot hold the remaining layers: the previous parts can hold at most layers 0 to 0, the "
          "other 3 "
          "layers have 15 bytes, and the limit of this part is 9 bytes");
  invalid({1, 1, 1}, 3, {{5, 5, 5}, {9, 4, 9}},
          "part 1 can begin only with layer 1, which has more bytes than the limit of this part (4)");
  invalid({1, 1}, 2, {{5, 5}, {4, 9}},
          "part 0 can begin only with layer 0, which has more bytes than the limit of this part (4)");
}

// ---- tied layers ----

// Compares the result with a search through all layers of all stages.
void stages_of_keys_are_found(void**) {
  Random random;
  static const char* const names[] = {"norm", "embed", "Embed", "a", "zz"};
  const int rounds = test_repetitions(300, 30);
  for (int round = 0; round < rounds; ++round) {
    const size_t n = 1 + random.below(30);
    const size_t parts = 1 + random.below(8);  // sometimes more parts than layers
    const Boundaries cut = boundaries("deepspeed_balanced", random.weights(n, 5), parts);
    std::map<std::string, std::set<size_t>> layers;
    for (size_t i = random.below(2 * n); i-- > 0;) layers[names[random.below(5)]].insert(random.below(n));
    std::vector<std::pair<const char*, size_t>> given;
    for (const auto& [name, of_name] : layers)
      for (const size_t layer : of_name) given.emplace_back(name.c_str(), layer);
    std::ranges::reverse(given);
    std::vector<const char*> keys;
    std::vector<size_t> numbers;
    for (const auto& [name, layer] : given) keys.push_back(name), numbers.push_back(layer);
    std::vector<size_t> entries(given.size() + 1), starts(given.size() + 1);
    std::vector<int32_t> stages(given.size() + 1);
    size_t n_keys = 99;
    assert_int_equal(dsc_tied_plan(keys.data(), numbers.data(), given.size(), cut.data(), parts,
                                   entries.data(), starts.data(), stages.data(), &n_keys),
                     DSC_OK);
    assert_int_equal(n_keys, layers.size());
    size_t k = 0;
    for (const auto& [name, of_name] : layers) {  // in alphabetical order
      assert_string_equal(keys[entries[k]], name.c_str());
      std::vector<int32_t> expected;
      for (size_t p = 0; p < parts; ++p)
        if (std::ranges::any_of(of_name, [&](size_t layer) { return layer >= cut[p] && layer < cut[p + 1]; }))
          expected.push_back(static_cast<int32_t>(p));
      const std::vector<int32_t> found(stages.begin() + static_cast<ptrdiff_t>(starts[k]),
                                       stages.begin() + static_cast<ptrdiff_t>(starts[k + 1]));
      assert_true(found == expected);
      ++k;
    }
  }
}

// ---- seeds ----

uint64_t layer_seed(uint64_t seed, uint64_t layer) {
  uint64_t found = 0;
  assert_int_equal(dsc_rng_layer_seed(seed, layer, nullptr, &found), DSC_OK);
  return found;
}

void seeds_of_layers_are_the_same_everywhere(void**) {
  // The expected seeds are from a Python implementation of the documented rule, with unbounded integers.
  assert_true(layer_seed(0, 0) == 0xa706dd2f4d197e6fu);
  assert_true(layer_seed(0, 1) == 0xb382a305f4414f5eu);
  assert_true(layer_seed(1234, 0) == 0x9e17e35f6d9238edu);
  assert_true(layer_seed(1234, 95) == 0xf7360057c7c7abu);
  assert_true(layer_seed(UINT64_MAX, UINT64_MAX) == 0x445018e305810b78u);
  std::vector<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 100; ++seed)
    for (uint64_t layer = 0; layer < 100; ++layer) seeds.push_back(layer_seed(seed, layer));
  std::ranges::sort(seeds);
  assert_true(std::ranges::adjacent_find(seeds) == seeds.end());
}

void seeds_of_regions_are_megatrons(void**) {
  uint64_t seed = 9;
  assert_int_equal(dsc_rng_region_seed(1234, DSC_RNG_REGION_DATA, 3, 2, 1, &seed), DSC_OK);
  assert_int_equal(seed, 1234);
  assert_int_equal(dsc_rng_region_seed(1234, DSC_RNG_REGION_TENSOR, 3, 2, 1, &seed), DSC_OK);
  assert_int_equal(seed, 1234 + 2718 + 3);
  assert_int_equal(dsc_rng_region_seed(1234, DSC_RNG_REGION_EXPERT, 3, 2, 1, &seed), DSC_OK);
  assert_int_equal(seed, 1234 + 1024 + 100 * 2 + 1);
  assert_int_equal(dsc_rng_region_seed(UINT64_MAX, DSC_RNG_REGION_DATA, 0, 0, 0, &seed), DSC_OK);
  assert_true(seed == UINT64_MAX);
  assert_int_equal(dsc_rng_region_seed(UINT64_MAX - 2717, DSC_RNG_REGION_TENSOR, 0, 0, 0, &seed),
                   DSC_ERR_OVERFLOW);
  assert_true(seed == UINT64_MAX);
}

}  // namespace

int main(int, char** argv) {
  vectors_path = argv[1];
  const CMUnitTest tests[] = {
      cmocka_unit_test(is_as_deepspeed),
      cmocka_unit_test(partitions_known_models),
      cmocka_unit_test(takes_zeros_as_deepspeed_does),
      cmocka_unit_test(the_old_search_ends),
      cmocka_unit_test(the_bottleneck_method_is_exact),
      cmocka_unit_test(it_is_exact_within_limits),
      cmocka_unit_test(large_lists_are_cut_well),
      cmocka_unit_test(is_never_heavier_than_deepspeed),
      cmocka_unit_test(large_lists_are_cut_fast),
      cmocka_unit_test(refuses_what_is_wrong),
      cmocka_unit_test(says_which_part_cannot_hold_its_layers),
      cmocka_unit_test(stages_of_keys_are_found),
      cmocka_unit_test(seeds_of_layers_are_the_same_everywhere),
      cmocka_unit_test(seeds_of_regions_are_megatrons),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
