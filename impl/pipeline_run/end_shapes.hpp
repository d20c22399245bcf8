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

  // Variable shapes: somebody writes sizes of each tensor here, and take() makes them those of a slot, or
  // throws INVALID_ARG for what does not fit. `name` is "output" or "input". Null: they are not variable.
  int64_t* const* sizes() const noexcept { return places_.empty() ? nullptr : places_.data(); }
  void reset(int32_t slot) noexcept;  // both to the largest
  void take(int32_t slot, const char* name);

 private:
  void keep_written(int32_t slot) noexcept;
  size_t first(int32_t slot) const noexcept { return static_cast<size_t>(slot) * largest_.size(); }

  std::vector<Tensor> largest_;
  std::vector<int64_t> largest_sizes_;
  std::vector<int64_t> written_;  // what is to be taken
  std::vector<int64_t*> places_;  // of each tensor in it
  std::vector<Tensor> tensors_;   // slot after slot
  std::vector<int64_t> sizes_;    // the same
};

}  // namespace dsc
