// The part of a bucket that holds one parameter's gradient.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dtype/dtype.hpp"
#include "memory/space.hpp"

namespace dsc {

struct GradientSlot {
  std::byte* view = nullptr;
  size_t count = 0;
  size_t bytes = 0;
  size_t bucket = 0;
  int32_t dtype = 0;
  int32_t gradient_dtype = 0;  // type of the gradients that callers pass

  size_t gradient_bytes() const noexcept { return count * dtype_bytes(gradient_dtype); }
  Elements elements() const noexcept { return {view, count, dtype}; }
  // Describes a copy of a gradient into this slot.
  ElementCopy copy_of(const void* gradient) const noexcept {
    return {view, dtype, gradient, gradient_dtype, count};
  }
};

}  // namespace dsc
