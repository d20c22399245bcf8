// Sums of arrays over a group, optionally in a type of fewer bits than the arrays have.
#pragma once

#include <memory>

#include "comm/comm.hpp"

namespace dsc {

// An array in host memory that is being summed in place. The array must live until finish(), and holds
// nothing of use meanwhile: what is sent lies in its first half, so that an array in memory which the ranks
// share is summed there without a copy.
class WireSum {
 public:
  // wire_dtype: DSC_DTYPE_F16 or BF16 for arrays of f32, or dtype itself.
  void start(Comm& group, int32_t dtype, void* values, size_t count, int32_t wire_dtype, double divisor,
             const char* note);
  const std::shared_ptr<Work>& work() const noexcept { return work_; }
  // After the work: brings the result into the array.
  void finish();

 private:
  int32_t dtype_ = 0;
  int32_t wire_dtype_ = 0;
  void* values_ = nullptr;
  size_t count_ = 0;
  std::shared_ptr<Work> work_;
};

}  // namespace dsc
