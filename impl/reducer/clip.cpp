#include "reducer/clip.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr size_t kBlock = 16384;  // number of elements in a block; ranks take blocks in turn

// Returns the blocks that this rank reads. The gradients are equal on all ranks, so the ranks divide the
// work.
std::vector<Elements> share_of(const Comm* group, std::span<const GradientSlot> slots,
                               const ClipRequest& request) {
  const auto ranks = static_cast<size_t>(group ? group->size() : 1);
  const auto rank = static_cast<size_t>(group ? group->rank() : 0);
  std::vector<Elements> parts;
  size_t block = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!request.counted.empty() && request.counted[i] == 0) continue;
    for (size_t at = 0; at < slots[i].count; at += kBlock, ++block)
      if (block % ranks == rank)
        parts.push_back({slots[i].view + at * dtype_bytes(slots[i].dtype),
                         std::min(kBlock, slots[i].count - at), slots[i].dtype});
  }
  return parts;
}

double norm_of(Comm* group, const BucketSet& set, const ClipRequest& request) {
  const Norm found = set.storage->norm(share_of(group, set.slots, request));
  const bool is_finite = found.nonfinite == 0;
  double value = request.norm == DSC_NORM_MAX && is_finite ? found.most : found.squares;
  for (Comm* const ranks : {group, request.shards})
    if (ranks) value = combine_norms(*ranks, value, request.norm, request.limit);
  return request.norm == DSC_NORM_MAX ? value : std::sqrt(value);
}

}  // namespace

void check_clip_request(const ClipRequest& request, const ParamList& params) {
  check_clip(request.limit);
  if (request.norm != DSC_NORM_TWO && request.norm != DSC_NORM_MAX)
    fail(DSC_ERR_INVALID_ARG, "norm is %d, expected 1 (two) or 2 (max)", request.norm);
  if (!request.counted.empty() && request.counted.size() != params.size())
    fail(DSC_ERR_INVALID_ARG, "counted has %zu entries, expected %zu", request.counted.size(), params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& param = params.tensors[i];
    if (!is_floating(param.dtype))
      fail(DSC_ERR_UNSUPPORTED, "%s has gradients of %s, expected floats", params.labels[i].c_str(),
           dtype_name(param.dtype));
    if (param.expect_sparse == 1)
      fail(DSC_ERR_UNSUPPORTED, "%s has sparse gradients, which cannot be clipped", params.labels[i].c_str());
  }
}

double clip_gradients(Comm* group, const BucketSet& set, std::span<void* const> copies,
                      const ClipRequest& request) {
  const double norm = norm_of(group, set, request) * std::fabs(request.limit.scale);
  const double factor = clip_factor(norm, request.limit);
  if (factor != 1) set.storage->scale(set.slots, copies, factor);
  return norm;
}

}  // namespace dsc
