#include "reducer/clip.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr size_t kBlock = 16384;       // elements that one rank takes at a time
constexpr double kSmallNumber = 1e-6;  // added to the norm that divides, as PyTorch's clip_grad_norm_ does

// Collective: sums squares, and takes the maximum of magnitudes, in place. Ranks with other requests are a
// mismatch.
void combine(Comm& group, GradientNorm& found, const ClipRequest& request) {
  const int32_t norm = request.norm;
  double& value = norm == DSC_NORM_MAX ? found.most : found.squares;
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = DSC_DTYPE_F64;
  call.op = norm == DSC_NORM_MAX ? DSC_OP_MAX : DSC_OP_SUM;
  call.send = &value;
  call.recv = &value;
  call.count = 1;
  const double numbers[] = {request.max_norm, request.scale};
  call.tag = fnv1a({reinterpret_cast<const char*>(numbers), sizeof numbers});
  std::snprintf(call.note, sizeof call.note, "clip to %.4g, scale %.4g", request.max_norm, request.scale);
  group.run(call);
}

// The gradients are equal on all ranks, so that each rank reads its share of them.
std::vector<GradientPart> share_of(const Comm* group, std::span<const GradientSlot> slots,
                                   const ClipRequest& request) {
  const auto ranks = static_cast<size_t>(group ? group->size() : 1);
  const auto rank = static_cast<size_t>(group ? group->rank() : 0);
  std::vector<GradientPart> parts;
  size_t block = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!request.counted.empty() && request.counted[i] == 0) continue;
    for (size_t at = 0; at < slots[i].count; at += kBlock, ++block)
      if (block % ranks == rank) parts.push_back({&slots[i], at, std::min(kBlock, slots[i].count - at)});
  }
  return parts;
}

double norm_of(Comm* group, const BucketSet& set, const ClipRequest& request) {
  GradientNorm found = set.storage->norm(share_of(group, set.slots, request));
  if (group) combine(*group, found, request);
  if (request.shards) combine(*request.shards, found, request);
  return request.norm == DSC_NORM_MAX ? found.most : std::sqrt(found.squares);
}

}  // namespace

void check_max_norm(double max_norm) {
  if (!(max_norm > 0))
    fail(DSC_ERR_INVALID_ARG, "max_norm is %g, expected more than 0, or infinity", max_norm);
}

void check_scale(double scale) {
  if (!std::isfinite(scale) || scale == 0)
    fail(DSC_ERR_INVALID_ARG, "scale is %g, expected a finite number other than 0", scale);
}

void check_clip_request(const ClipRequest& request, const ParamList& params) {
  check_max_norm(request.max_norm);
  check_scale(request.scale);
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
  const double norm = norm_of(group, set, request) * std::fabs(request.scale);
  if (!std::isfinite(norm)) return norm;
  const double factor = request.scale * std::min(1.0, request.max_norm / (norm + kSmallNumber));
  if (factor != 1) set.storage->scale(set.slots, copies, factor);
  return norm;
}

}  // namespace dsc
