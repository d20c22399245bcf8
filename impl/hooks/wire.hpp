// Sums of arrays over a group, optionally in a type with fewer bits than the arrays.
#pragma once

#include <memory>

#include "memory/space.hpp"

namespace dsc {

// An array that is summed in place. `divisor` divides its elements before the sum.
struct WireArray {
  Comm& group;
  Space& space;
  void* stream;  // null in host memory
  Elements elements;
  int32_t wire_dtype;  // of what is sent: DSC_DTYPE_F16 or BF16 for arrays of f32, or their own type
  int divisor;
};

// The array must stay valid until finish(). Its contents are undefined meanwhile.
class WireSum {
 public:
  void start(const WireArray& array, const char* note);
  const std::shared_ptr<Work>& work() const noexcept { return work_; }
  // Called after the work has ended (on a device: ordered after it). Writes the result to the array.
  void finish();

 private:
  Space* space_ = nullptr;
  void* stream_ = nullptr;
  Elements elements_{};
  int32_t wire_dtype_ = 0;
  Memory narrow_;  // on a device, from start() to finish()
  std::shared_ptr<Work> work_;
};

}  // namespace dsc
