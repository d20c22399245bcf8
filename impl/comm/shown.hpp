// What ranks show each other of a call before its data moves, since it must be the same for all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/call.hpp"
#include "control/layout.hpp"

namespace dsc {

struct Shown {
  uint64_t fingerprint;
  CallFields fields;
  char note[40];
};

Shown show(const Call& call, uint64_t group, uint64_t number);

// "ranks 0, 1: all_reduce(sum, f32, 3), rank 2: barrier()"; empty if all show the same. all[i] is what
// ranks[i] show.
std::string difference(const std::vector<Shown>& all, const std::vector<std::vector<int32_t>>& ranks);

}  // namespace dsc
