// Copies of gradients into their places, with conversion between element types.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsc {

// Copies a gradient, or adds it to what is there; one of another type is converted first.
void put_gradient(std::byte* to, int32_t to_dtype, const void* from, int32_t from_dtype, size_t count,
                  bool adds);

}  // namespace dsc
