// Adds arrays, with the widest vectors of this machine.
#pragma once

#include <cstddef>

namespace bench {

// Writes the sum of all arrays of `from` to every array of `to`. An array may be in both. With
// `non_temporal`, stores bypass the caches where the targets are aligned, and are visible when the function
// returns.
void sum(const float* const* from, size_t sources, float* const* to, size_t targets, size_t count,
         bool non_temporal);

}  // namespace bench
