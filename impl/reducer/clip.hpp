// The norm of all gradients, and scaling by it.
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
  int32_t norm;                      // dsc_norm_t
  Comm* shards;                      // ranks with other parts of the same model; null: none
  std::span<const uint8_t> counted;  // by parameter: 0 if another rank of `shards` counts it; empty: all
};

// Throws INVALID_ARG for a wrong request, and UNSUPPORTED for gradients that have no norm here.
void check_clip_request(const ClipRequest& request, const ParamList& params);

// Collective over the group. If `group` is null, this rank reads all gradients itself. The gradients are in
// the slots of `set`, equal on all ranks. Each is also written to its entry of `copies`, unless that is null.
// Returns the norm after the scale; if it is not finite, nothing is written.
double clip_gradients(Comm* group, const BucketSet& set, std::span<void* const> copies,
                      const ClipRequest& request);

}  // namespace dsc
