// Finds the elements of largest magnitude, for sparse gradients (Aji and Heafield, "Sparse Communication for
// Distributed Gradient Descent", 2017; Lin et al., "Deep Gradient Compression", 2018). A radix search over
// the bits of the magnitudes finds the threshold. In large arrays, samples first reduce the number of values
// to search.
#pragma once

#include <cstdint>
#include <span>

namespace dsc {

// Writes the indices of the elements of largest magnitude in ascending order. indices.size() is the number of
// elements to find. Among equal magnitudes the lower index is chosen. All NaNs are equal, and larger than
// infinity. The result is the same on every processor. The time is proportional to the number of values. The
// function allocates memory for at most as many numbers as there are values.
//
// Requires at most as many indices as values, and fewer than 2^32 values.
void select_top_k(std::span<const float> values, std::span<uint32_t> indices);

}  // namespace dsc
