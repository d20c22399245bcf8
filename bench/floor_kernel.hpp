// Multiplies a buffer in place with the widest vectors this machine has.
#pragma once

#include <cstddef>

namespace bench {

// The buffer is aligned to a page. non_temporal: stores go around the caches and are visible on return.
void scale_in_place(float* buffer, size_t count, float factor, bool non_temporal);

}  // namespace bench
