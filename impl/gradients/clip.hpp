// A limit on the norm of all gradients, by the rule of PyTorch's clip_grad_norm_.
#pragma once

#include "comm/comm.hpp"

namespace dsc {

struct ClipLimit {
  double max_norm;  // infinity: gradients are only scaled
  double scale;     // multiplies the gradients before the norm is limited
};

// Throws INVALID_ARG for a limit or scale out of range.
void check_clip(const ClipLimit& limit);

// Collective: returns the sum of the values of all ranks, or their maximum with DSC_NORM_MAX. If ranks have
// different limits, this is a mismatch.
double combine_norms(Comm& group, double value, int32_t norm, const ClipLimit& limit);

// Returns the factor by which gradients are multiplied if their norm after the scale is `norm`; 1 if the norm
// is not finite.
double clip_factor(double norm, const ClipLimit& limit);

}  // namespace dsc
