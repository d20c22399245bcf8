#include "shard_plan.hpp"

#include <algorithm>
#include <vector>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "bucket_plan/shard_copies.hpp"
#include "checks.hpp"
#include "dtype/dtype.hpp"
#include "give.hpp"

namespace {

dsc_shard_plan_options_t default_layout_options() {
  dsc_shard_plan_options_t options{};
  options.struct_size = sizeof options;
  options.bucket_elements = 40'000'000;
  options.alignment = 16;
  options.layout = DSC_SHARD_LAYOUT_UNIT;
  return options;
}

std::vector<dsc::ShardTensor> tensors_of(const size_t* counts, const dsc_dtype_t* dtypes, size_t n,
                                         std::span<const uint8_t> alone) {
  std::vector<dsc::ShardTensor> tensors;
  for (size_t i = 0; i < n; ++i) {
    if (!dsc::is_dtype(dtypes[i]))
      dsc::fail(DSC_ERR_INVALID_ARG, "dtypes[%zu] is %d, expected 1 (i8) to 13 (bool)", i, dtypes[i]);
    tensors.push_back({counts[i], dtypes[i], !alone.empty() && alone[i] != 0});
  }
  return tensors;
}

dsc::ShardLayout lay_out(const size_t* counts, const dsc_dtype_t* dtypes, size_t n, size_t shards,
                         const dsc_shard_plan_options_t* options) {
  dsc::ReadShardPlan plan = dsc::read_shard_plan(options, n);
  plan.rules.shards = shards;
  return dsc::make_shard_layout(tensors_of(counts, dtypes, n, plan.alone), plan.rules);
}

void check_list(const size_t* counts, const dsc_dtype_t* dtypes, size_t n) {
  if (n == 0) dsc::fail(DSC_ERR_INVALID_ARG, "n is 0, expected 1 or more");
  dsc::require(counts, "counts");
  dsc::require(dtypes, "dtypes");
}

dsc_shard_bucket_t convert_bucket(const dsc::ShardBucket& from) {
  dsc_shard_bucket_t to{};
  to.unit = from.unit;
  to.used = from.used;
  to.size = from.size;
  to.dtype = from.dtype;
  return to;
}

dsc_shard_copy_t convert_copy(const dsc::ShardCopy& from) {
  dsc_shard_copy_t to{};
  to.param = from.param;
  to.from_shard = from.from_shard;
  to.from_bucket = from.from_bucket;
  to.from_start = from.from_start;
  to.to_bucket = from.to_bucket;
  to.to_start = from.to_start;
  to.count = from.count;
  return to;
}

}  // namespace

namespace dsc {

ReadShardPlan read_shard_plan(const dsc_shard_plan_options_t* given, size_t n_params) {
  const auto options = read_sized(given, default_layout_options(), "options");
  if (options.wide_padding != 0 && options.wide_padding != 1)
    fail(DSC_ERR_INVALID_ARG, "wide_padding is %d, expected 0 or 1", options.wide_padding);
  ReadShardPlan plan;
  plan.rules.layout = options.layout;
  plan.rules.alignment = options.alignment;
  plan.rules.bucket_elements = options.bucket_elements;
  plan.rules.wide_padding = options.wide_padding == 1;
  if (options.n_units > 0)
    plan.rules.unit_starts = std::span(&require(options.unit_starts, "unit_starts"), options.n_units);
  if (options.n_units == 0 && options.unit_starts)
    fail(DSC_ERR_INVALID_ARG, "n_units is 0, expected the number of unit_starts");
  if (!options.alone) return plan;
  plan.alone = std::span(options.alone, n_params);
  for (size_t i = 0; i < n_params; ++i)
    if (plan.alone[i] > 1) fail(DSC_ERR_INVALID_ARG, "alone[%zu] is %d, expected 0 or 1", i, plan.alone[i]);
  return plan;
}

}  // namespace dsc

dsc_result_t dsc_shard_plan_options_init(dsc_shard_plan_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_layout_options(), "options"); });
}

dsc_result_t dsc_shard_plan(const size_t* counts, const dsc_dtype_t* dtypes, size_t n, size_t shards,
                            const dsc_shard_plan_options_t* options, size_t* param_buckets,
                            size_t* param_starts, dsc_shard_bucket_t* buckets, size_t capacity,
                            size_t* needed) {
  return dsc::guard_pure(__func__, [&] {
    check_list(counts, dtypes, n);
    dsc::require(param_buckets, "param_buckets");
    dsc::require(param_starts, "param_starts");
    dsc::check_room(buckets, "buckets", capacity, needed);
    const auto layout = lay_out(counts, dtypes, n, shards, options);
    const auto given =
        dsc::give_structs("buckets", layout.buckets, buckets, capacity, needed, convert_bucket);
    for (size_t i = 0; i < n; ++i) {
      param_buckets[i] = layout.locations[i].bucket;
      param_starts[i] = layout.locations[i].start;
    }
    return given;
  });
}

dsc_result_t dsc_shard_copies(const size_t* counts, const dsc_dtype_t* dtypes, size_t n, size_t from_shards,
                              const dsc_shard_plan_options_t* from_options, size_t to_shards,
                              const dsc_shard_plan_options_t* to_options, size_t shard,
                              dsc_shard_copy_t* copies, size_t capacity, size_t* needed) {
  return dsc::guard_pure(__func__, [&] {
    check_list(counts, dtypes, n);
    dsc::check_room(copies, "copies", capacity, needed);
    const auto old_layout = lay_out(counts, dtypes, n, from_shards, from_options);
    const auto new_layout = lay_out(counts, dtypes, n, to_shards, to_options);
    if (shard >= to_shards)
      dsc::fail(DSC_ERR_INVALID_ARG, "shard is %zu, expected 0 to %zu", shard, to_shards - 1);
    const auto list = dsc::shard_copies(tensors_of(counts, dtypes, n, {}), old_layout, new_layout, shard);
    return dsc::give_structs("copies", list, copies, capacity, needed, convert_copy);
  });
}
