// Bucket planning against recorded results of PyTorch, and shard indices against results of a Python
// reference.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "dsc/dsc.h"
#include "json.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using Buckets = std::vector<std::vector<size_t>>;

std::string vectors_path;

struct Case {
  std::vector<size_t> counts;
  std::vector<dsc_dtype_t> dtypes;
  std::vector<int32_t> devices;
  std::vector<uint8_t> expect_sparse;
  std::vector<size_t> order;
  std::vector<size_t> limits;
};

struct Plan {
  dsc_result_t result;
  Buckets buckets;
  std::vector<size_t> limits;
};

template <typename T>
const T* or_null(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

Plan plan(const Case& c) {
  const size_t n = c.counts.size();
  std::vector<size_t> indices(n);
  std::vector<size_t> starts(n + 1);
  std::vector<size_t> limits(n);
  size_t n_buckets = 0;
  dsc_bucket_plan_options_t options;
  assert_int_equal(dsc_bucket_plan_options_init(&options, sizeof options), DSC_OK);
  options.devices = or_null(c.devices);
  options.expect_sparse = or_null(c.expect_sparse);
  options.order = or_null(c.order);
  options.limits = or_null(c.limits);
  options.n_limits = c.limits.size();
  const dsc_result_t result = dsc_bucket_plan(c.counts.data(), c.dtypes.data(), n, &options, indices.data(),
                                              starts.data(), limits.data(), &n_buckets);
  Plan plan{result, {}, {}};
  if (result != DSC_OK) return plan;
  for (size_t b = 0; b < n_buckets; ++b) {
    plan.buckets.emplace_back(indices.begin() + static_cast<ptrdiff_t>(starts[b]),
                              indices.begin() + static_cast<ptrdiff_t>(starts[b + 1]));
  }
  plan.limits.assign(limits.begin(), limits.begin() + static_cast<ptrdiff_t>(n_buckets));
  return plan;
}

Case f32(std::vector<size_t> counts, std::vector<size_t> limits) {
  Case c;
  c.dtypes.assign(counts.size(), DSC_DTYPE_F32);
  c.counts = std::move(counts);
  c.limits = std::move(limits);
  return c;
}

Case parsed(const support::Json& json) {
  static const std::map<std::string, dsc_dtype_t> dtypes{{"f16", DSC_DTYPE_F16},   {"f32", DSC_DTYPE_F32},
                                                         {"f64", DSC_DTYPE_F64},   {"i64", DSC_DTYPE_I64},
                                                         {"bf16", DSC_DTYPE_BF16}, {"u8", DSC_DTYPE_U8}};
  const size_t n = json["tensors"].size();
  Case c;
  c.counts.resize(n);
  c.dtypes.resize(n);
  c.devices.resize(n);
  c.order = json["tensor_indices"].get<std::vector<size_t>>();
  for (size_t position = 0; position < n; ++position) {  // the vectors list tensors by position, not by index
    const size_t index = c.order.empty() ? position : c.order[position];
    const auto& tensor = json["tensors"][position];
    c.counts[index] = tensor["numel"];
    c.dtypes[index] = dtypes.at(tensor["dtype"]);
    c.devices[index] = tensor["device"] == "cpu" ? -1 : 0;
  }
  for (const auto& sparse : json["expect_sparse"]) c.expect_sparse.push_back(sparse.get<bool>() ? 1 : 0);
  c.limits = json["limits"].get<std::vector<size_t>>();
  return c;
}

// PyTorch orders its unfilled buckets by a hash map. Here they are sorted by their first tensors.
void sort_unfilled(const Case& c, size_t n_unfilled, Buckets& buckets, std::vector<size_t>& limits) {
  std::vector<size_t> position(c.counts.size());
  for (size_t i = 0; i < c.order.size(); ++i) position[c.order[i]] = i;
  std::vector<std::pair<std::vector<size_t>, size_t>> both;
  for (size_t b = 0; b < buckets.size(); ++b) both.emplace_back(buckets[b], limits[b]);
  std::sort(both.end() - static_cast<ptrdiff_t>(n_unfilled), both.end(),
            [&](const auto& a, const auto& b) { return position[a.first[0]] < position[b.first[0]]; });
  for (size_t b = 0; b < buckets.size(); ++b) std::tie(buckets[b], limits[b]) = both[b];
}

void plans_like_pytorch(void**) {
  std::ifstream file(vectors_path);
  size_t cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const auto json = support::Json::parse(line);
    const Case c = parsed(json);
    auto buckets = json["buckets"].get<Buckets>();
    auto limits = json["per_bucket_limits"].get<std::vector<size_t>>();
    if (!json["order_defined"].get<bool>()) sort_unfilled(c, json["n_leftover"], buckets, limits);
    const Plan got = plan(c);
    if (got.buckets != buckets || got.limits != limits) {
      print_error("%s: got %s\n", line.c_str(), support::Json(got.buckets).dump().c_str());
      fail();
    }
  }
  assert_int_equal(cases, 159);
}

void plans_small_cases(void**) {
  assert_true(plan(f32({100, 10, 50, 5}, {1048576, 26214400})).buckets == (Buckets{{0, 1, 2, 3}}));
  assert_true(plan(f32({10, 10, 10}, {40, 80})).buckets == (Buckets{{0}, {1, 2}}));
  assert_true(plan(f32({0, 0}, {1})).buckets == (Buckets{{0, 1}}));
  assert_true(plan(f32({0, 0}, {0})).buckets == (Buckets{{0}, {1}}));
  Case mixed = f32({1, 1, 1, 1}, {100});
  mixed.dtypes = {DSC_DTYPE_F64, DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_F32};
  mixed.order = {3, 2, 1, 0};
  // unfilled buckets are sorted by their first position
  assert_true(plan(mixed).buckets == (Buckets{{3, 1}, {2, 0}}));
}

void expect_refusal(const Case& c, dsc_result_t code, const char* words) {
  assert_int_equal(plan(c).result, code);
  if (!std::strstr(dsc_last_error_message(), words)) {
    print_error("expected \"%s\" in \"%s\"\n", words, dsc_last_error_message());
    fail();
  }
}

void refuses_bad_plans(void**) {
  Case c = f32({1, 2, 3}, {10});
  c.order = {0, 1, 1};
  expect_refusal(c, DSC_ERR_INVALID_ARG, "order[2] is 1, expected each tensor once");
  c.order = {0, 1, 3};
  expect_refusal(c, DSC_ERR_INVALID_ARG, "order[2] is 3");
  c.order = {};
  c.dtypes[1] = 0;
  expect_refusal(c, DSC_ERR_INVALID_ARG, "dtypes[1] is 0");
  c.dtypes[1] = DSC_DTYPE_F32;
  c.expect_sparse = {0, 2, 0};
  expect_refusal(c, DSC_ERR_INVALID_ARG, "expect_sparse[1]");
  assert_true(plan(f32({1}, {})).limits == std::vector<size_t>{1 << 20});  // the default of the reducer
  expect_refusal(f32({}, {1}), DSC_ERR_INVALID_ARG, "n is 0");
  expect_refusal(f32({SIZE_MAX}, {1}), DSC_ERR_OVERFLOW, "tensor 0");
  expect_refusal(f32({SIZE_MAX / 8, SIZE_MAX / 8, SIZE_MAX / 8}, {SIZE_MAX}), DSC_ERR_OVERFLOW, "tensor 2");

  const size_t count = 1;
  const dsc_dtype_t dtype = DSC_DTYPE_F32;
  size_t out[2];
  const auto with = [&](const size_t* counts, const dsc_dtype_t* dtypes, const size_t* limits,
                        size_t* indices, size_t* starts, size_t* n_buckets) {
    dsc_bucket_plan_options_t options;
    assert_int_equal(dsc_bucket_plan_options_init(&options, sizeof options), DSC_OK);
    options.limits = limits;
    options.n_limits = 1;
    return dsc_bucket_plan(counts, dtypes, 1, &options, indices, starts, nullptr, n_buckets);
  };
  assert_int_equal(with(nullptr, &dtype, &count, out, out, out), DSC_ERR_INVALID_ARG);
  assert_int_equal(with(&count, nullptr, &count, out, out, out), DSC_ERR_INVALID_ARG);
  assert_int_equal(with(&count, &dtype, nullptr, out, out, out), DSC_ERR_INVALID_ARG);
  assert_int_equal(with(&count, &dtype, &count, nullptr, out, out), DSC_ERR_INVALID_ARG);
  assert_int_equal(with(&count, &dtype, &count, out, nullptr, out), DSC_ERR_INVALID_ARG);
  assert_int_equal(with(&count, &dtype, &count, out, out, nullptr), DSC_ERR_INVALID_ARG);
}

std::vector<size_t> shard_of(size_t count, size_t shards, size_t shard, int shuffle, uint64_t seed,
                             int drop_last) {
  size_t n = 0;
  assert_int_equal(dsc_sampler_indices(count, shards, shard, shuffle, seed, drop_last, nullptr, 0, &n),
                   DSC_OK);
  std::vector<size_t> indices(n);
  if (n > 0) {
    assert_int_equal(
        dsc_sampler_indices(count, shards, shard, shuffle, seed, drop_last, indices.data(), n, &n), DSC_OK);
  }
  assert_int_equal(indices.size(), n);
  return indices;
}

// A Python script with unbounded integers computed these shards by the same rules. The random numbers are
// from SplitMix64. A random index below n is the upper half of the product random * n; if the lower half is
// less than 2^64 modulo n, another random number is drawn. The Fisher-Yates shuffle starts at the end.
void shards_are_the_same_everywhere(void**) {
  using Shard = std::vector<size_t>;
  assert_true(shard_of(10, 3, 0, 1, 42, 0) == (Shard{8, 5, 9, 7}));
  assert_true(shard_of(10, 3, 0, 1, 42, 1) == (Shard{8, 5, 9}));
  assert_true(shard_of(10, 3, 1, 1, 42, 0) == (Shard{3, 4, 2, 8}));
  assert_true(shard_of(10, 3, 1, 1, 42, 1) == (Shard{3, 4, 2}));
  assert_true(shard_of(10, 3, 2, 1, 42, 0) == (Shard{6, 0, 1, 3}));
  assert_true(shard_of(10, 3, 2, 1, 42, 1) == (Shard{6, 0, 1}));
  assert_true(shard_of(16, 1, 0, 1, UINT64_MAX, 0) ==
              (Shard{1, 15, 11, 12, 4, 7, 0, 6, 2, 10, 9, 8, 5, 3, 13, 14}));
  assert_true(shard_of(3, 4, 3, 1, 1, 0) == (Shard{0}));
  assert_true(shard_of(7, 2, 1, 0, 9, 0) == (Shard{1, 3, 5, 0}));
}

void shards_make_up_the_set(void**) {
  for (const size_t count : {1, 2, 7, 100, 1797}) {
    for (const size_t shards : {1, 2, 3, 4, 101}) {
      for (const int shuffle : {0, 1}) {
        for (const int drop_last : {0, 1}) {
          const size_t size = drop_last ? count / shards : (count + shards - 1) / shards;
          std::vector<size_t> seen(count);
          for (size_t k = 0; k < shards; ++k) {
            const auto indices = shard_of(count, shards, k, shuffle, 7, drop_last);
            assert_int_equal(indices.size(), size);
            for (const size_t index : indices) ++seen.at(index);
          }
          // Without drop_last every sample occurs at least once. Some occur again if there are more positions
          // than samples.
          const size_t total = size * shards;
          const auto [least, most] = std::minmax_element(seen.begin(), seen.end());
          assert_int_equal(*least, total / count);
          assert_int_equal(*most, (total + count - 1) / count);
        }
      }
    }
  }
}

// For any number of shards, each global batch consists of the next samples of the same sequence.
void batches_do_not_depend_on_shards(void**) {
  const auto sequence = shard_of(96, 1, 0, 1, 3, 0);
  for (const size_t shards : {2, 3, 4}) {
    for (size_t k = 0; k < shards; ++k) {
      const auto indices = shard_of(96, shards, k, 1, 3, 0);
      for (size_t i = 0; i < indices.size(); ++i) assert_int_equal(indices[i], sequence[i * shards + k]);
    }
  }
  assert_true(shard_of(96, 1, 0, 1, 4, 0) != sequence);
}

void refuses_bad_shards(void**) {
  size_t n = 99;
  size_t out[10];
  assert_int_equal(dsc_sampler_indices(0, 1, 0, 0, 0, 0, out, 10, &n), DSC_ERR_INVALID_ARG);
  assert_int_equal(dsc_sampler_indices(1, 0, 0, 0, 0, 0, out, 10, &n), DSC_ERR_INVALID_ARG);
  assert_int_equal(dsc_sampler_indices(1, 2, 2, 0, 0, 0, out, 10, &n), DSC_ERR_INVALID_ARG);
  assert_int_equal(dsc_sampler_indices(1, 2, 2, 0, 0, 0, nullptr, 0, &n), DSC_ERR_INVALID_ARG);
  assert_int_equal(dsc_sampler_indices(1, 1, 0, 2, 0, 0, out, 10, &n), DSC_ERR_INVALID_ARG);
  assert_int_equal(dsc_sampler_indices(1, 1, 0, 0, 0, 2, out, 10, &n), DSC_ERR_INVALID_ARG);
  assert_int_equal(dsc_sampler_indices(1, 1, 0, 0, 0, 0, nullptr, 10, &n), DSC_ERR_INVALID_ARG);
  assert_int_equal(dsc_sampler_indices(1, 1, 0, 0, 0, 0, out, 10, nullptr), DSC_ERR_INVALID_ARG);
  assert_int_equal(dsc_sampler_indices(SIZE_MAX, 1, 0, 0, 0, 0, nullptr, 0, &n), DSC_ERR_OVERFLOW);
  assert_int_equal(dsc_sampler_indices(1, SIZE_MAX, 0, 0, 0, 0, nullptr, 0, &n), DSC_ERR_OVERFLOW);
  assert_int_equal(n, 99);
}

void gives_as_many_samples_as_fit(void**) {
  size_t n = 99;
  size_t out[10];
  assert_int_equal(dsc_sampler_indices(20, 1, 0, 0, 0, 0, out, 10, &n), DSC_TRUNCATED);
  assert_int_equal(n, 20);
  for (size_t i = 0; i < 10; ++i) assert_int_equal(out[i], i);
}

}  // namespace

int main(int, char** argv) {
  vectors_path = argv[1];
  const CMUnitTest tests[] = {
      cmocka_unit_test(plans_like_pytorch),     cmocka_unit_test(plans_small_cases),
      cmocka_unit_test(refuses_bad_plans),      cmocka_unit_test(shards_are_the_same_everywhere),
      cmocka_unit_test(shards_make_up_the_set), cmocka_unit_test(batches_do_not_depend_on_shards),
      cmocka_unit_test(refuses_bad_shards),     cmocka_unit_test(gives_as_many_samples_as_fit),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
