// The elements of largest magnitude, for sparse gradients (Aji and Heafield, "Sparse Communication for
// Distributed Gradient Descent", 2017; Lin et al., "Deep Gradient Compression", 2018). A radix search over
// the bits of the magnitudes finds the threshold. In large arrays it searches only the values that samples
// suggest.
#pragma once

#include <cstdint>
#include <span>

namespace dsc {

// Writes the indices, ascending, of the indices.size() elements of largest magnitude. Among equal magnitudes
// the lower index is chosen; every NaN counts as equal and larger than infinity. The result is the same on
// every processor. Time is proportional to the number of values, and memory holds at most as many numbers.
//
// Requires at most as many indices as values, and fewer than 2^32 values.
void select_top_k(std::span<const float> values, std::span<uint32_t> indices);

}  // namespace dsc
