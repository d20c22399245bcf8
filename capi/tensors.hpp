// Lists of tensors that callers pass.
#pragma once

#include <vector>

#include "comm/tensor.hpp"
#include "dsc/tensor.h"

namespace dsc {

// `name` is the argument's. Throws INVALID_ARG for a list that cannot be read; the tensors themselves are not
// checked.
std::vector<Tensor> read_tensors(const dsc_tensor_t* tensors, size_t n, const char* name);

}  // namespace dsc
