// The parameters of a reducer: what it keeps of the description that the caller passed at creation.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/tensor.hpp"

namespace dsc {

// Owns the names and shapes of parameters. `tensors` describes the gradients in buckets. These tensors have
// the element type of their bucket and no data pointer. Sparse gradients are in no bucket, so their tensors
// have no elements.
class ParamList {
 public:
  // grad_dtype is the element type of buckets; 0 means the type of each parameter.
  ParamList(std::span<const Tensor> params, int32_t grad_dtype);
  ParamList(const ParamList&) = delete;
  ParamList& operator=(const ParamList&) = delete;

  size_t size() const noexcept { return tensors.size(); }

  std::vector<Tensor> tensors;
  std::vector<int32_t> gradient_dtypes;  // types of the gradients that callers pass
  std::vector<std::string> labels;       // how messages name the parameters

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<int64_t>> shapes_;
};

}  // namespace dsc
