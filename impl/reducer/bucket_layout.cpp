#include "reducer/bucket_layout.hpp"

#include <array>
#include <limits>

#include "base/error.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

BucketPlan planned(std::span<const Tensor> params, const BucketLayoutOptions& options) {
  std::vector<PlanTensor> tensors;
  for (const Tensor& param : params)
    tensors.push_back(
        {param.count, dtype_bytes(param.dtype), param.dtype, param.device, param.expect_sparse == 1});
  std::array<size_t, 2> limits{options.first_bucket_bytes, options.bucket_bytes};
  if (options.single_first_bucket) limits.fill(std::numeric_limits<size_t>::max());
  // The reduction of the last bucket cannot overlap with computation, so the small first bucket is made the
  // last one, as with PyTorch's DDP_SET_LAST_BUCKET_CAP=1. Gradients become ready from the last layer to the
  // first, so the plan is reversed.
  return reversed(plan_buckets(tensors, {}, limits));
}

void check_bucket(std::span<const Tensor> params, std::span<const size_t> bucket, size_t number,
                  std::vector<bool>& placed) {
  if (bucket.empty()) fail(DSC_ERR_INVALID_ARG, "empty bucket specified: bucket %zu", number);
  for (const size_t index : bucket)
    if (bucket.size() > 1 && index < params.size() && params[index].expect_sparse == 1)
      fail(DSC_ERR_INVALID_ARG,
           "bucket %zu has %s among others, expected a parameter with sparse gradients alone", number,
           label(params[index].name, index).c_str());
  for (const size_t index : bucket) {
    if (index >= params.size())
      fail(DSC_ERR_INVALID_ARG, "bucket %zu has parameter %zu, expected 0 to %zu", number, index,
           params.size() - 1);
    const std::string name = label(params[index].name, index);
    if (placed[index])
      fail(DSC_ERR_INVALID_ARG, "bucket %zu repeats %s, expected each parameter once", number, name.c_str());
    placed[index] = true;
    if (params[index].dtype != params[bucket[0]].dtype) {
      fail(DSC_ERR_INVALID_ARG,
           "all parameters in a bucket must have the same dtype: bucket %zu has %s and %s (%s)", number,
           dtype_name(params[bucket[0]].dtype), dtype_name(params[index].dtype), name.c_str());
    }
    if (params[index].device != params[bucket[0]].device) {
      fail(DSC_ERR_INVALID_ARG,
           "all parameters in a bucket must be placed on the same device: bucket %zu has %d and %d (%s)",
           number, params[bucket[0]].device, params[index].device, name.c_str());
    }
  }
}

BucketPlan explicit_plan(std::span<const Tensor> params, const BucketLayoutOptions& options) {
  BucketPlan plan;
  plan.indices.assign(options.indices.begin(), options.indices.end());
  plan.starts.assign(options.starts.begin(), options.starts.end());
  plan.limits.assign(options.starts.size() - 1, 0);
  std::vector<bool> placed(params.size());
  for (size_t b = 0; b < plan.buckets(); ++b) check_bucket(params, plan.bucket(b), b, placed);
  for (size_t i = 0; i < params.size(); ++i) {
    if (!placed[i])
      fail(DSC_ERR_INVALID_ARG, "no bucket has %s, expected each parameter once",
           label(params[i].name, i).c_str());
  }
  return plan;
}

// Adds `bytes` to the total at an aligned offset, and returns that offset.
size_t append(size_t& total, size_t bytes, size_t alignment) {
  const size_t offset = (total + alignment - 1) / alignment * alignment;
  if (offset < total || __builtin_add_overflow(offset, bytes, &total))
    fail(DSC_ERR_OVERFLOW, "the buckets are larger than any memory");
  return offset;
}

}  // namespace

void check_starts(std::span<const size_t> starts) {
  if (!starts.empty() && starts[0] != 0)
    fail(DSC_ERR_INVALID_ARG, "bucket_starts[0] is %zu, expected 0", starts[0]);
  for (size_t b = 1; b < starts.size(); ++b) {
    if (starts[b] < starts[b - 1])
      fail(DSC_ERR_INVALID_ARG, "bucket_starts[%zu] is %zu, less than the one before", b, starts[b]);
  }
}

BucketLayout make_bucket_layout(std::span<const Tensor> params, const BucketLayoutOptions& options) {
  BucketLayout layout;
  layout.part_alignment = options.part_alignment;
  layout.plan = options.starts.empty() ? planned(params, options) : explicit_plan(params, options);
  layout.param_offsets.resize(params.size());
  layout.param_buckets.resize(params.size());
  for (size_t b = 0; b < layout.plan.buckets(); ++b) {
    const auto indices = layout.plan.bucket(b);
    size_t bytes = 0;
    BucketLayout::Bucket bucket{params[indices[0]].dtype, 0, 0};
    for (const size_t index : indices) {
      // The offset is relative to the bucket until the bucket's own offset is known.
      layout.param_offsets[index] = append(bytes, params[index].bytes(), options.part_alignment);
      layout.param_buckets[index] = b;
    }
    bucket.count = bytes / dtype_bytes(bucket.dtype);
    bucket.offset = append(layout.bytes, bytes, BucketLayout::kAlignment);
    for (const size_t index : indices) layout.param_offsets[index] += bucket.offset;
    layout.buckets.push_back(bucket);
  }
  return layout;
}

}  // namespace dsc
