// Multiplies a buffer in place, with the widest vectors of this machine.
#pragma once

#include <cstddef>

namespace bench {

// The buffer must be aligned to a page. With `non_temporal`, stores bypass the caches, and are visible when
// the function returns.
void scale_in_place(float* buffer, size_t count, float factor, bool non_temporal);

}  // namespace bench
