// Error feedback: the part of a gradient that its compressed form loses is added to the gradient of the next
// iteration (Seide, Fu, Droppo, Li and Yu, "1-Bit Stochastic Gradient Descent", 2014).
#pragma once

#include <cstddef>

namespace dsc {

// Computes error -= sent. Before the call, `error` holds what should have been sent. Elements that would be
// NaN or infinite become 0, because they would stay in the error permanently. The arrays must not overlap.
void keep_error(float* error, const float* sent, size_t count);

}  // namespace dsc
