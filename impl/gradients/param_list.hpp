// The parameters of a reducer: the part of the caller's description that it keeps after creation.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/tensor.hpp"

namespace dsc {

// Owns names and shapes. The tensors describe gradients as they are in buckets: without data, and of the
// bucket's type. Sparse gradients are in no bucket, so their tensors have no elements.
class ParamList {
 public:
  // grad_dtype is the element type of buckets; 0: that of each parameter.
  ParamList(std::span<const Tensor> params, int32_t grad_dtype);
  ParamList(const ParamList&) = delete;
  ParamList& operator=(const ParamList&) = delete;

  size_t size() const noexcept { return tensors.size(); }

  std::vector<Tensor> tensors;
  std::vector<int32_t> gradient_dtypes;  // of the gradients that callers pass
  std::vector<std::string> labels;       // for messages

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<int64_t>> shapes_;
};

}  // namespace dsc
