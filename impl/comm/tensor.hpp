// One tensor of a caller's list, and how messages speak of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dsc/types.h"

namespace dsc {

struct Tensor {
  void* data = nullptr;
  size_t count = 0;
  std::span<const int64_t> shape;
  bool has_shape = false;  // an empty shape is a scalar's
  const char* name = nullptr;
  int32_t dtype = 0;
  int32_t device = -1;
  int32_t expect_sparse = 0;

  size_t bytes() const noexcept;
};

std::string label(const char* name, size_t index);  // "fc.weight (index 3)", or "parameter 3" without a name
std::string describe(const Tensor& tensor);         // "f32 [10, 20]", or "f32, 200 elements" without a shape

// Throws INVALID_ARG for what cannot be a tensor, OVERFLOW when its bytes do not fit.
void check_tensors(std::span<const Tensor> tensors);

struct TensorProblem {
  dsc_result_t code;
  std::string text;
};

class Comm;

// What stands in the way of working on these tensors in this group. All of them are in one place: host
// memory, or the device that the group is bound to.
std::optional<TensorProblem> first_problem(const Comm& comm, std::span<const Tensor> tensors,
                                           bool needs_data);

// At most `most` bytes; what was longer ends in "...".
std::string clipped(std::string text, size_t most);

}  // namespace dsc
