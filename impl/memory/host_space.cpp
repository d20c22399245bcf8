// Host memory. The calling thread does the work before the function returns.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/guard.hpp"
#include "comm/memory.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"
#include "memory/space.hpp"

namespace dsc {
namespace {

constexpr size_t kChunk = 4096;  // number of elements to convert in one step, in a buffer on the stack
// Number of running sums. It is fixed, so that the same data always gives the same bits.
constexpr size_t kLanes = 8;
constexpr size_t kLine = 128;  // two cache lines, which processors load together

std::byte* element_at(const void* data, size_t index, int32_t dtype) {
  return static_cast<std::byte*>(const_cast<void*>(data)) + index * dtype_bytes(dtype);
}

// Adds at most one value to each running sum. A comparison with NaN is false, so the largest magnitude
// ignores NaNs.
template <typename T>
void add_lanes(double (&squares)[kLanes], T (&most)[kLanes], const T* values, size_t count) {
  for (size_t lane = 0; lane < count; ++lane) {
    const auto value = static_cast<double>(values[lane]);
    squares[lane] += value * value;
  }
  for (size_t lane = 0; lane < count; ++lane) {
    const T magnitude = std::fabs(values[lane]);
    most[lane] = magnitude > most[lane] ? magnitude : most[lane];
  }
}

template <typename T>
void add_values(Norm& norm, const T* values, size_t count) {
  double squares[kLanes] = {};
  T most[kLanes] = {};
  size_t done = 0;
  for (; done + kLanes <= count; done += kLanes) add_lanes(squares, most, values + done, kLanes);
  add_lanes(squares, most, values + done, count - done);
  double own = 0;
  for (const double sum : squares) {
    norm.squares += sum;
    own += sum;
  }
  norm.most = std::max(norm.most, static_cast<double>(*std::ranges::max_element(most)));
  if (std::isfinite(own)) return;
  for (size_t i = 0; i < count; ++i) norm.nonfinite += std::isfinite(values[i]) ? 0 : 1;
}

void add_norm(Norm& norm, const Elements& elements) {
  const auto [data, count, dtype] = elements;
  if (dtype == DSC_DTYPE_F64) return add_values(norm, static_cast<const double*>(data), count);
  if (dtype == DSC_DTYPE_F32) return add_values(norm, static_cast<const float*>(data), count);
  float wide[kChunk];
  for (size_t done = 0; done < count; done += kChunk) {
    const size_t n = std::min(kChunk, count - done);
    cast(DSC_DTYPE_F32, wide, dtype, element_at(data, done, dtype), n);
    add_values(norm, wide, n);
  }
}

class HostSpace final : public Space {
 public:
  explicit HostSpace(Comm& group) noexcept : Space(group, -1) {}

  void prepare() const override {}
  bool is_prepared() const override { return true; }

  // Allocates at least one line, so that memory of 0 bytes also has an address.
  Memory allocate(size_t bytes) override {
    return {static_cast<std::byte*>(group().allocate_memory(std::max(bytes, kLine))),
            [](std::byte* memory) { call_out([&] { release_memory(memory); }); }};
  }
  Memory allocate_own(size_t bytes) override {
    return {new std::byte[bytes](), std::default_delete<std::byte[]>()};
  }
  Memory take(size_t bytes, void*) override {
    return {new std::byte[bytes], std::default_delete<std::byte[]>()};
  }
  Memory stage(size_t bytes) override { return take(bytes, nullptr); }

  std::shared_ptr<void> make_stream() override { return nullptr; }
  bool is_captured(void*) const override { return false; }
  bool is_of_thread(void*) const noexcept override { return false; }
  Mark mark(void*) override { return nullptr; }
  void follow(void*, const Mark&) override {}
  bool wait_for(const Mark&, Deadline) const override { return true; }

  void copy(const ElementCopy& copy, void* stream) override;
  void add(const ElementCopy& copy, void* stream) override;
  void divide(const Elements& elements, int divisor, void*) override {
    dsc::divide(elements.dtype, elements.data, elements.data, elements.count, divisor);
  }
  void zero(void* at, size_t bytes, void*) override {
    if (bytes > 0) std::memset(at, 0, bytes);
  }
  void copy_rows(const RowsCopy& copy, void*) override {
    for (size_t row = 0; row < copy.rows; ++row)
      copy_bytes(static_cast<std::byte*>(copy.to) + row * copy.to_stride,
                 static_cast<const std::byte*>(copy.from) + row * copy.from_stride, copy.row_bytes);
  }
  void gather(const PartsCopy& copy, void* stream) override;
  void scatter(const PartsCopy& copy, void* stream) override;

  size_t norm_bytes() const noexcept override { return sizeof(Norm); }
};

// If both types are equal, elements are scaled while they are copied.
void HostSpace::copy(const ElementCopy& copy, void*) {
  if (copy.count == 0) return;
  if (copy.from_dtype != copy.to_dtype) {
    cast(copy.to_dtype, copy.to, copy.from_dtype, copy.from, copy.count);
    if (copy.scale != 1) multiply(copy.to_dtype, copy.to, copy.to, copy.count, copy.scale);
  } else if (copy.scale != 1) {
    multiply(copy.to_dtype, copy.to, copy.from, copy.count, copy.scale);
  } else {
    copy_bytes(copy.to, copy.from, copy.count * dtype_bytes(copy.to_dtype));
  }
}

void HostSpace::add(const ElementCopy& copy, void*) {
  if (copy.from_dtype == copy.to_dtype) return dsc::add(copy.to_dtype, copy.to, copy.from, copy.count);
  alignas(64) std::byte chunk[kChunk * sizeof(float)];
  for (size_t done = 0; done < copy.count; done += kChunk) {
    const size_t n = std::min(kChunk, copy.count - done);
    cast(copy.to_dtype, chunk, copy.from_dtype, element_at(copy.from, done, copy.from_dtype), n);
    dsc::add(copy.to_dtype, element_at(copy.to, done, copy.to_dtype), chunk, n);
  }
}

void HostSpace::gather(const PartsCopy& parts, void* stream) {
  for (const auto& [tensor, count, offset] : parts.parts) {
    std::byte* const to = element_at(parts.block, offset, parts.block_dtype);
    ElementCopy one{to, parts.block_dtype, tensor, parts.tensor_dtype, count, parts.scale};
    if (parts.norm) {  // the norm is that of the elements before they are scaled
      one.scale = 1;
      copy(one, stream);
      add_norm(*static_cast<Norm*>(parts.norm), {to, count, parts.block_dtype});
      if (parts.scale != 1) scale({to, count, parts.block_dtype}, parts.scale, stream);
    } else {
      copy(one, stream);
    }
  }
}

void HostSpace::scatter(const PartsCopy& parts, void* stream) {
  for (const auto& [tensor, count, offset] : parts.parts)
    copy({.to = tensor,
          .to_dtype = parts.tensor_dtype,
          .from = element_at(parts.block, offset, parts.block_dtype),
          .from_dtype = parts.block_dtype,
          .count = count,
          .scale = parts.scale},
         stream);
}

}  // namespace

std::unique_ptr<Space> Space::of_host(Comm& group) { return std::make_unique<HostSpace>(group); }

}  // namespace dsc
