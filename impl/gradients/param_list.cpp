#include "gradients/param_list.hpp"

namespace dsc {
namespace {

constexpr size_t kNamesBytes = 200;  // length of a list of names in messages

}  // namespace

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

std::string ParamList::name_list(std::span<const size_t> indices) const {
  std::string text;
  for (size_t i = 0; i < indices.size(); ++i) {
    const std::string& name = labels[indices[i]];
    if (i > 0 && text.size() + name.size() > kNamesBytes)
      return text + " and " + std::to_string(indices.size() - i) + " more";
    text += (i == 0 ? "" : ", ") + name;
  }
  return text;
}

}  // namespace dsc
