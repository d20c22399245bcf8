// Computes the norm of all gradients, and scales them by a factor that depends on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/comm.hpp"
#include "gradients/clip.hpp"
#include "gradients/param_list.hpp"
#include "reducer/bucket_set.hpp"

namespace dsc {

struct ClipRequest {
  ClipLimit limit;
  int32_t norm;  // dsc_norm_t
  Comm* shards;  // ranks that hold other parts of the same model; null if there are none
  // One entry per parameter: 0 if another rank of `shards` adds this parameter's gradient to the norm,
  // otherwise 1. If the list is empty, this rank adds the gradients of all parameters.
  std::span<const uint8_t> counted;
};

// Throws INVALID_ARG for an invalid request, and UNSUPPORTED for integer or sparse gradients.
void check_clip_request(const ClipRequest& request, const ParamList& params);

// Clips the gradients in the slots of `set`, which must be equal on all ranks. Collective over `group`; if it
// is null, this rank reads all gradients itself. Each result is also written to its entry in `copies`, unless
// that entry is null. Returns the norm after scaling. If the norm is not finite, nothing is written.
double clip_gradients(Comm* group, const BucketSet& set, std::span<void* const> copies,
                      const ClipRequest& request);

}  // namespace dsc
