// Reads the options of shard layouts.
#pragma once

#include <vector>

#include "bucket_plan/shard_layout.hpp"
#include "dsc/sharded.h"

namespace dsc {

struct ReadShardPlan {
  ShardRules rules;                // refers to the caller's list of units, without copying it
  std::span<const uint8_t> alone;  // the caller's list, or empty
};

// Throws INVALID_ARG for malformed options.
ReadShardPlan read_shard_plan(const dsc_shard_plan_options_t* options, size_t n_params);

}  // namespace dsc
