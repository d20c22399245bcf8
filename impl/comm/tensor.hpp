// A tensor of a list that the caller passes, with its checks and its description for messages.
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
  bool has_shape = false;  // an empty shape means a scalar
  const char* name = nullptr;
  int32_t dtype = 0;
  int32_t device = -1;
  int32_t expect_sparse = 0;

  size_t bytes() const noexcept;
};

// Returns a name such as "fc.weight (index 3)", or "parameter 3" without a name.
std::string label(const char* name, size_t index);
// Returns a text such as "f32 [10, 20]", or "f32, 200 elements" without a shape.
std::string describe(const Tensor& tensor);

// Returns the labels of some tensors, separated by commas. After about 200 bytes, the rest is only counted.
std::string listed_labels(std::span<const std::string> labels, std::span<const size_t> indices);

// Throws INVALID_ARG for an invalid tensor, and OVERFLOW if its size in bytes exceeds the range of size_t.
void check_tensors(std::span<const Tensor> tensors);

struct TensorProblem {
  dsc_result_t code;
  std::string text;
};

class Comm;

// Returns why this group cannot use the tensors, or nullopt if it can. They must all be in host memory, or
// all on the device to which the group is bound.
std::optional<TensorProblem> first_problem(const Comm& comm, std::span<const Tensor> tensors,
                                           bool needs_data);

// Throws INVALID_ARG if a gradient is not in the same memory as the parameters: `device`, or host memory if
// it is -1. The gradient may be null.
void expect_gradient_on(const Comm& comm, int32_t device, const void* gradient, const std::string& who);

// Returns the text, cut to at most `most` bytes. If it was cut, it ends in "...".
std::string clipped(std::string text, size_t most);

}  // namespace dsc
