// Reads lists of tensors that callers pass.
#pragma once

#include <vector>

#include "comm/tensor.hpp"
#include "dsc/tensor.h"

namespace dsc {

// `name` is the name of the argument. Throws INVALID_ARG for a malformed list. Does not check the tensors
// themselves.
std::vector<Tensor> read_tensors(const dsc_tensor_t* tensors, size_t n, const char* name);

}  // namespace dsc
