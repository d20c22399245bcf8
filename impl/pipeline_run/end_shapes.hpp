// The input tensors or the output tensors of a stage, for each buffer. The class holds their addresses and,
// with variable shapes, their sizes for the micro-batch that is in the buffer.
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
  // `described` lists the tensors. If shapes are variable, they are the largest allowed ones. Otherwise the
  // shapes in the list must outlive this object.
  EndShapes(const std::vector<Tensor>& described, size_t slots, bool is_variable);
  EndShapes(const EndShapes&) = delete;
  EndShapes& operator=(const EndShapes&) = delete;
  EndShapes(EndShapes&&) = default;
  EndShapes& operator=(EndShapes&&) = default;

  std::span<const Tensor> row(int32_t slot) const noexcept;
  void set_data(size_t slot, size_t tensor, std::byte* data) noexcept;

  // With variable shapes, the caller writes the sizes of each tensor to sizes(). Then take() assigns them to
  // a slot, or throws INVALID_ARG if they are too large. `name` is "output" or "input". sizes() is null if
  // shapes are not variable.
  int64_t* const* sizes() const noexcept { return positions_.empty() ? nullptr : positions_.data(); }
  void reset(int32_t slot) noexcept;  // resets the slot and sizes() to the largest allowed sizes
  void take(int32_t slot, const char* name);

 private:
  void keep_written(int32_t slot) noexcept;
  size_t first(int32_t slot) const noexcept { return static_cast<size_t>(slot) * largest_.size(); }

  std::vector<Tensor> largest_;
  std::vector<int64_t> largest_sizes_;
  std::vector<int64_t> written_;     // the sizes that the caller writes and take() reads
  std::vector<int64_t*> positions_;  // for each tensor, the address of its sizes in written_
  std::vector<Tensor> tensors_;      // tensors of slot 0, then those of slot 1, and so on
  std::vector<int64_t> sizes_;       // sizes of these tensors, in the same order
};

}  // namespace dsc
