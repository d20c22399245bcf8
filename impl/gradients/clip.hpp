// A limit on the norm of all gradients, with the same rule as PyTorch's clip_grad_norm_.
#pragma once

#include "comm/comm.hpp"

namespace dsc {

struct ClipLimit {
  double max_norm;  // with infinity, gradients are only scaled
  double scale;     // multiplies the gradients before the norm is limited
};

// Throws INVALID_ARG if max_norm or scale is out of range.
void check_clip(const ClipLimit& limit);

// Collective. Returns the sum of the values of all ranks, or their maximum with DSC_NORM_MAX. Throws MISMATCH
// if ranks have different limits.
double combine_norms(Comm& group, double value, int32_t norm, const ClipLimit& limit);

// Returns the factor by which all gradients must be multiplied. `norm` is their norm after scaling. Returns 1
// if the norm is not finite.
double clip_factor(double norm, const ClipLimit& limit);

}  // namespace dsc
