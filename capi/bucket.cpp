#include "dsc/bucket.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "bucket_plan/plan.hpp"
#include "checks.hpp"
#include "dtype/dtype.hpp"

namespace {

constexpr size_t kDefaultLimits[] = {size_t{1} << 20, size_t{25} << 20};

dsc_bucket_plan_options_t default_bucket_options() {
  dsc_bucket_plan_options_t options{};
  options.struct_size = sizeof options;
  return options;
}

std::span<const size_t> read_limits(const dsc_bucket_plan_options_t& options) {
  if (!options.limits && options.n_limits == 0) return kDefaultLimits;
  if (options.n_limits == 0) dsc::fail(DSC_ERR_INVALID_ARG, "options->n_limits is 0, expected 1 or more");
  return {&dsc::require(options.limits, "options->limits"), options.n_limits};
}

std::vector<dsc::PlanTensor> described(const size_t* counts, const dsc_dtype_t* dtypes, size_t n,
                                       const dsc_bucket_plan_options_t& options) {
  const uint8_t* expect_sparse = options.expect_sparse;
  std::vector<dsc::PlanTensor> tensors;
  for (size_t i = 0; i < n; ++i) {
    const size_t element_bytes = dsc::dtype_bytes(dtypes[i]);
    if (element_bytes == 0)
      dsc::fail(DSC_ERR_INVALID_ARG, "dtypes[%zu] is %d, expected 1 (i8) to 13 (bool)", i, dtypes[i]);
    if (expect_sparse && expect_sparse[i] > 1)
      dsc::fail(DSC_ERR_INVALID_ARG, "options->expect_sparse[%zu] is %d, expected 0 or 1", i,
                expect_sparse[i]);
    tensors.push_back({counts[i], element_bytes, dtypes[i], options.devices ? options.devices[i] : 0,
                       expect_sparse && expect_sparse[i] == 1});
  }
  return tensors;
}

}  // namespace

dsc_result_t dsc_bucket_plan_options_init(dsc_bucket_plan_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_bucket_options(), "options"); });
}

dsc_result_t dsc_bucket_plan(const size_t* counts, const dsc_dtype_t* dtypes, size_t n,
                             const dsc_bucket_plan_options_t* options, size_t* indices, size_t* starts,
                             size_t* bucket_limits, size_t* n_buckets) {
  return dsc::guard_pure(__func__, [&] {
    if (n == 0) dsc::fail(DSC_ERR_INVALID_ARG, "n is 0, expected 1 or more");
    const auto given = dsc::read_sized(options, default_bucket_options(), "options");
    const auto limits = read_limits(given);
    dsc::require(counts, "counts");
    dsc::require(dtypes, "dtypes");
    dsc::require(indices, "indices");
    dsc::require(starts, "starts");
    dsc::require(n_buckets, "n_buckets");
    const auto tensors = described(counts, dtypes, n, given);
    const auto plan = dsc::plan_buckets(tensors, {given.order, given.order ? n : 0}, limits);
    std::ranges::copy(plan.indices, indices);
    std::ranges::copy(plan.starts, starts);
    if (bucket_limits) std::ranges::copy(plan.limits, bucket_limits);
    *n_buckets = plan.buckets();
  });
}
