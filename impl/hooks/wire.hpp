// Computes sums of arrays over a group. The data may be sent in a type with fewer bits than the arrays have.
#pragma once

#include <memory>

#include "memory/space.hpp"

namespace dsc {

// An array that is summed in place. Its elements are divided by `divisor` before the sum.
struct WireArray {
  Comm& group;
  Space& space;
  void* stream;  // null in host memory
  Elements elements;
  // Type of the data that is sent: DSC_DTYPE_F16 or BF16 for arrays of f32, or the type of the array.
  int32_t wire_dtype;
  int divisor;
};

// A sum in progress. The array must stay valid until finish(), and its contents are undefined until then.
class WireSum {
 public:
  void start(const WireArray& array, const char* note);
  const std::shared_ptr<Work>& work() const noexcept { return work_; }
  // Writes the result to the array. Called after the work has ended or, on a device, ordered after it.
  void finish();

 private:
  Space* space_ = nullptr;
  void* stream_ = nullptr;
  Elements elements_{};
  int32_t wire_dtype_ = 0;
  Memory narrow_;  // used on a device, from start() to finish()
  std::shared_ptr<Work> work_;
};

}  // namespace dsc
