#include "gradients/clip.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace dsc {
namespace {

constexpr double kSmallNumber = 1e-6;  // added to the norm before dividing, as in PyTorch's clip_grad_norm_

}  // namespace

void check_clip(const ClipLimit& limit) {
  if (!(limit.max_norm > 0))
    fail(DSC_ERR_INVALID_ARG, "max_norm is %g, expected more than 0, or infinity", limit.max_norm);
  if (!std::isfinite(limit.scale) || limit.scale == 0)
    fail(DSC_ERR_INVALID_ARG, "scale is %g, expected a finite number other than 0", limit.scale);
}

double combine_norms(Comm& group, double value, int32_t norm, const ClipLimit& limit) {
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = DSC_DTYPE_F64;
  call.op = norm == DSC_NORM_MAX ? DSC_OP_MAX : DSC_OP_SUM;
  call.send = call.recv = &value;
  call.count = 1;
  const double numbers[] = {limit.max_norm, limit.scale};
  call.tag = fnv1a({reinterpret_cast<const char*>(numbers), sizeof numbers});
  std::snprintf(call.note, sizeof call.note, "clip to %.4g, scale %.4g", limit.max_norm, limit.scale);
  group.run(call);
  return value;
}

// All ranks have the same norm, so either all ranks scale their gradients or no rank does.
double clip_factor(double norm, const ClipLimit& limit) {
  if (!std::isfinite(norm)) return 1;
  return limit.scale * std::min(1.0, limit.max_norm / (norm + kSmallNumber));
}

}  // namespace dsc
