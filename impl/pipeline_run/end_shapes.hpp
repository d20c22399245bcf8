// The tensors of one end of a stage, for each buffer: their places, and with variable shapes what the
// micro-batch in it has for sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/tensor.hpp"

namespace dsc {

class EndShapes {
 public:
  EndShapes() = default;
  // Of what the caller described, whose shapes live as long as this, unless they are variable: then they are
  // the largest.
  EndShapes(const std::vector<Tensor>& described, size_t slots, bool is_variable);
  EndShapes(const EndShapes&) = delete;
  EndShapes& operator=(const EndShapes&) = delete;
  EndShapes(EndShapes&&) = default;
  EndShapes& operator=(EndShapes&&) = default;

  std::span<const Tensor> row(int32_t slot) const noexcept;
  void set_data(size_t slot, size_t tensor, std::byte* data) noexcept;

  // Variable shapes: sizes of each tensor of a slot, to be written; take() looks at them then and throws
  // INVALID_ARG for what does not fit in the slot. `name` is "output" or "input".
  int64_t* const* sizes(int32_t slot) const noexcept;
  void reset(int32_t slot) noexcept;  // to the largest
  void take(int32_t slot, const char* name);

 private:
  size_t first(int32_t slot) const noexcept { return static_cast<size_t>(slot) * largest_.size(); }

  std::vector<Tensor> largest_;
  std::vector<int64_t> largest_sizes_;  // of a slot
  std::vector<Tensor> tensors_;         // slot after slot, as all below
  std::vector<int64_t> sizes_;
  std::vector<int64_t*> places_;  // of the sizes of each tensor
};

}  // namespace dsc
