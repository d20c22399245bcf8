// The limit of the norm of all gradients, by the rule of PyTorch's clip_grad_norm_.
#pragma once

#include "comm/comm.hpp"

namespace dsc {

struct ClipLimit {
  double max_norm;  // infinity: gradients are only scaled
  double scale;     // of the gradients, before the norm is limited
};

// Throws INVALID_ARG for a wrong number.
void check_clip(const ClipLimit& limit);

// Collective: returns the sum of the values of all ranks, or their maximum with DSC_NORM_MAX. Ranks with
// other limits are a mismatch.
double combine_norms(Comm& group, double value, int32_t norm, const ClipLimit& limit);

// Returns by which factor gradients are multiplied whose norm after the scale is this one; 1 if it is not
// finite.
double clip_factor(double norm, const ClipLimit& limit);

}  // namespace dsc
