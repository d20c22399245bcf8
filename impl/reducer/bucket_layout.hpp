// The offsets of all gradients: buckets in launch order, in one block of memory.
#pragma once

#include <span>
#include <vector>

#include "bucket_plan/plan.hpp"
#include "comm/tensor.hpp"

namespace dsc {

struct BucketLayoutOptions {
  size_t bucket_bytes = 0;
  size_t first_bucket_bytes = 0;
  bool single_first_bucket = false;
  size_t part_alignment = 1;        // in bytes, of each parameter in its bucket
  std::span<const size_t> indices;  // explicit buckets, in the form of BucketPlan
  std::span<const size_t> starts;   // empty: the buckets are planned
};

struct BucketLayout {
  struct Bucket {
    int32_t dtype;
    size_t count;   // elements, including padding between parameters
    size_t offset;  // bytes from the block's start, a multiple of kAlignment
  };
  static constexpr size_t kAlignment = 128;  // two cache lines, which processors fetch together

  BucketPlan plan;
  std::vector<Bucket> buckets;
  std::vector<size_t> param_offsets;  // bytes from the block's start
  std::vector<size_t> param_buckets;
  size_t bytes = 0;
  size_t part_alignment = 1;  // of the options
};

// Throws INVALID_ARG unless starts can be read as the starts of buckets.
void check_starts(std::span<const size_t> starts);

// Throws INVALID_ARG for explicit buckets that are empty, mix types, or miss or repeat a parameter.
BucketLayout make_bucket_layout(std::span<const Tensor> params, const BucketLayoutOptions& options);

}  // namespace dsc
