#include "pipeline_run/end_shapes.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace dsc {
namespace {

// Returns the number of elements, or -1 for sizes that no tensor can have.
int64_t elements_of(std::span<const int64_t> sizes) {
  int64_t elements = 1;
  bool is_empty = false;
  for (const int64_t size : sizes) {
    if (size < 0) return -1;
    is_empty = is_empty || size == 0;
    if (!is_empty && __builtin_mul_overflow(elements, size, &elements)) return -1;
  }
  return is_empty ? 0 : elements;
}

// Returns the type and shape of a tensor, such as "f32 [10, 20]".
std::string shape_text(const Tensor& tensor) {
  const std::string text = describe(tensor);
  return clipped(text.substr(0, text.find(']') + 1), 100);
}

}  // namespace

EndShapes::EndShapes(const std::vector<Tensor>& described, size_t slots, bool is_variable)
    : largest_(described) {
  for (size_t slot = 0; slot < slots; ++slot)
    tensors_.insert(tensors_.end(), described.begin(), described.end());
  if (!is_variable) return;
  for (const Tensor& tensor : described)
    largest_sizes_.insert(largest_sizes_.end(), tensor.shape.begin(), tensor.shape.end());
  written_ = largest_sizes_;
  for (size_t slot = 0; slot < slots; ++slot)
    sizes_.insert(sizes_.end(), largest_sizes_.begin(), largest_sizes_.end());
  int64_t* next = sizes_.data();
  for (Tensor& tensor : tensors_) {
    tensor.shape = {next, tensor.shape.size()};
    next += tensor.shape.size();
  }
  next = written_.data();
  for (const Tensor& tensor : largest_) {
    positions_.push_back(next);
    next += tensor.shape.size();
  }
}

std::span<const Tensor> EndShapes::row(int32_t slot) const noexcept {
  return {tensors_.data() + first(slot), largest_.size()};
}

void EndShapes::set_data(size_t slot, size_t tensor, std::byte* data) noexcept {
  tensors_[slot * largest_.size() + tensor].data = data;
}

void EndShapes::reset(int32_t slot) noexcept {
  written_ = largest_sizes_;
  keep_written(slot);
  for (size_t i = 0; i < largest_.size(); ++i) tensors_[first(slot) + i].count = largest_[i].count;
}

void EndShapes::keep_written(int32_t slot) noexcept {
  std::ranges::copy(written_, sizes_.begin() + static_cast<ptrdiff_t>(slot) * std::ssize(written_));
}

void EndShapes::take(int32_t slot, const char* name) {
  for (size_t i = 0; i < largest_.size(); ++i) {
    Tensor tensor = largest_[i];
    tensor.shape = {positions_[i], tensor.shape.size()};
    const int64_t elements = elements_of(tensor.shape);
    if (elements < 0 || static_cast<size_t>(elements) > tensor.count)
      fail(DSC_ERR_INVALID_ARG, "the shape of %s %zu is %s, expected at most the %zu elements of %s", name, i,
           shape_text(tensor).c_str(), tensor.count, shape_text(largest_[i]).c_str());
    tensors_[first(slot) + i].count = static_cast<size_t>(elements);
  }
  keep_written(slot);
}

}  // namespace dsc
