#include "dsc/bucket.h"

#include <algorithm>
#include <vector>

#include "base/guard.hpp"
#include "bucket_plan/plan.hpp"
#include "bucket_plan/shard.hpp"
#include "checks.hpp"
#include "dtype/dtype.hpp"
#include "give.hpp"

namespace {

std::vector<dsc::PlanTensor> described(const size_t* counts, const dsc_dtype_t* dtypes,
                                       const int32_t* devices, const uint8_t* expect_sparse, size_t n) {
  std::vector<dsc::PlanTensor> tensors;
  for (size_t i = 0; i < n; ++i) {
    const size_t element_bytes = dsc::dtype_bytes(dtypes[i]);
    if (element_bytes == 0)
      dsc::fail(DSC_ERR_INVALID_ARG, "dtypes[%zu] is %d, expected 1 (i8) to 13 (bool)", i, dtypes[i]);
    if (expect_sparse && expect_sparse[i] > 1)
      dsc::fail(DSC_ERR_INVALID_ARG, "expect_sparse[%zu] is %d, expected 0 or 1", i, expect_sparse[i]);
    tensors.push_back({counts[i], element_bytes, dtypes[i], devices ? devices[i] : 0,
                       expect_sparse && expect_sparse[i] == 1});
  }
  return tensors;
}

}  // namespace

dsc_result_t dsc_bucket_plan(const size_t* counts, const dsc_dtype_t* dtypes, const int32_t* devices,
                             const uint8_t* expect_sparse, const size_t* order, size_t n,
                             const size_t* limits, size_t n_limits, size_t* indices, size_t* starts,
                             size_t* bucket_limits, size_t* n_buckets) {
  return dsc::guard_pure(__func__, [&] {
    if (n == 0) dsc::fail(DSC_ERR_INVALID_ARG, "n is 0, expected 1 or more");
    if (n_limits == 0) dsc::fail(DSC_ERR_INVALID_ARG, "n_limits is 0, expected 1 or more");
    dsc::require(counts, "counts");
    dsc::require(dtypes, "dtypes");
    dsc::require(limits, "limits");
    dsc::require(indices, "indices");
    dsc::require(starts, "starts");
    dsc::require(n_buckets, "n_buckets");
    const auto tensors = described(counts, dtypes, devices, expect_sparse, n);
    const auto plan = dsc::plan_buckets(tensors, {order, order ? n : 0}, {limits, n_limits});
    std::ranges::copy(plan.indices, indices);
    std::ranges::copy(plan.starts, starts);
    if (bucket_limits) std::ranges::copy(plan.limits, bucket_limits);
    *n_buckets = plan.buckets();
  });
}

dsc_result_t dsc_sampler_indices(size_t count, size_t shards, size_t shard, int32_t shuffle, uint64_t seed,
                               int32_t drop_last, size_t* indices, size_t capacity, size_t* n_indices) {
  return dsc::guard_pure(__func__, [&] {
    const dsc::Sharding sharding{count, shards, dsc::read_flag("shuffle", shuffle), seed,
                                 dsc::read_flag("drop_last", drop_last)};
    dsc::check_room(indices, "indices", capacity, n_indices);
    const size_t size = dsc::shard_size(sharding);
    dsc::check_shard(sharding, shard);
    *n_indices = size;
    if (capacity == 0) return DSC_OK;
    if (capacity >= *n_indices) {
      dsc::shard_indices(sharding, shard, {indices, *n_indices});
      return DSC_OK;
    }
    std::vector<size_t> all(*n_indices);
    dsc::shard_indices(sharding, shard, all);
    std::copy_n(all.begin(), capacity, indices);
    return DSC_TRUNCATED;
  });
}
