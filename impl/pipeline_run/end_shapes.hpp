// The tensors at one end of a stage, for each buffer: their addresses and, with variable shapes, the sizes of
// the micro-batch that is in the buffer.
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
  // `described` lists the tensors; their shapes must outlive this object, unless they are variable: then they
  // are the largest allowed ones.
  EndShapes(const std::vector<Tensor>& described, size_t slots, bool is_variable);
  EndShapes(const EndShapes&) = delete;
  EndShapes& operator=(const EndShapes&) = delete;
  EndShapes(EndShapes&&) = default;
  EndShapes& operator=(EndShapes&&) = default;

  std::span<const Tensor> row(int32_t slot) const noexcept;
  void set_data(size_t slot, size_t tensor, std::byte* data) noexcept;

  // With variable shapes the caller writes sizes of each tensor to sizes(), and take() assigns them to a
  // slot, or throws INVALID_ARG if they do not fit. `name` is "output" or "input". sizes() is null if shapes
  // are not variable.
  int64_t* const* sizes() const noexcept { return positions_.empty() ? nullptr : positions_.data(); }
  void reset(int32_t slot) noexcept;  // sets the slot and the written sizes to the largest
  void take(int32_t slot, const char* name);

 private:
  void keep_written(int32_t slot) noexcept;
  size_t first(int32_t slot) const noexcept { return static_cast<size_t>(slot) * largest_.size(); }

  std::vector<Tensor> largest_;
  std::vector<int64_t> largest_sizes_;
  std::vector<int64_t> written_;     // sizes that take() will read
  std::vector<int64_t*> positions_;  // for each tensor its position in written_
  std::vector<Tensor> tensors_;      // slot after slot
  std::vector<int64_t> sizes_;       // slot after slot
};

}  // namespace dsc
