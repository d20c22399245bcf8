#include "gradients/param_list.hpp"

namespace dsc {

ParamList::ParamList(std::span<const Tensor> params, int32_t grad_dtype)
    : tensors(params.begin(), params.end()), names_(params.size()), shapes_(params.size()) {
  for (size_t i = 0; i < params.size(); ++i) {
    Tensor& tensor = tensors[i];
    labels.push_back(label(tensor.name, i));
    gradient_dtypes.push_back(tensor.dtype);
    shapes_[i].assign(tensor.shape.begin(), tensor.shape.end());
    tensor.shape = shapes_[i];
    if (tensor.name) {
      names_[i] = tensor.name;
      tensor.name = names_[i].c_str();
    }
    tensor.data = nullptr;
    if (grad_dtype != 0) tensor.dtype = grad_dtype;
    if (tensor.expect_sparse == 1) tensor.count = 0;
  }
}

}  // namespace dsc
