#include "sharded/put_gradient.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"

namespace dsc {
namespace {

constexpr size_t kConvertedElements = 4096;  // at a time

}  // namespace

void put_gradient(std::byte* to, int32_t to_dtype, const void* from, int32_t from_dtype, size_t count,
                  bool adds) {
  if (count == 0) return;
  const size_t element = dtype_bytes(to_dtype);
  if (from_dtype == to_dtype) {
    if (adds) return add(to_dtype, to, from, count);
    std::memcpy(to, from, count * element);
    return;
  }
  if (!adds) return cast(to_dtype, to, from_dtype, from, count);
  const auto* source = static_cast<const std::byte*>(from);
  std::vector<std::byte> converted(std::min(count, kConvertedElements) * element);
  for (size_t done = 0; done < count; done += kConvertedElements) {
    const size_t part = std::min(kConvertedElements, count - done);
    cast(to_dtype, converted.data(), from_dtype, source + done * dtype_bytes(from_dtype), part);
    add(to_dtype, to + done * element, converted.data(), part);
  }
}

}  // namespace dsc
