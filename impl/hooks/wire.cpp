#include "hooks/wire.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"

namespace dsc {
namespace {

constexpr size_t kBlock = 2048;  // elements of a block, which stays in the first-level cache

// A temporary buffer for one block. The source and the result of the first block overlap, so it is copied
// through this buffer.
struct alignas(64) Block {
  std::byte bytes[kBlock * sizeof(float)];
};

// Converts an array of f32 in place; the result is in the first half of the array. Blocks are converted from
// front to back. The elements are divided before the sum, in the type that is sent, as in PyTorch's hooks.
void narrow(int32_t wire_dtype, float* values, size_t count, double divisor) {
  auto* sent = reinterpret_cast<std::byte*>(values);
  Block block;
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t n = std::min(kBlock, count - at);
    cast(wire_dtype, block.bytes, DSC_DTYPE_F32, values + at, n);
    divide(wire_dtype, sent + at * dtype_bytes(wire_dtype), block.bytes, n, divisor);
  }
}

// Reverses the conversion of narrow(). Blocks are converted from back to front.
void widen(int32_t wire_dtype, float* values, size_t count) {
  if (count == 0) return;
  const auto* sent = reinterpret_cast<const std::byte*>(values);
  for (size_t at = (count - 1) / kBlock * kBlock; at > 0; at -= kBlock)
    cast(DSC_DTYPE_F32, values + at, wire_dtype, sent + at * dtype_bytes(wire_dtype),
         std::min(kBlock, count - at));
  Block first;
  const size_t n = std::min(kBlock, count);
  std::memcpy(first.bytes, sent, n * dtype_bytes(wire_dtype));
  cast(DSC_DTYPE_F32, values, wire_dtype, first.bytes, n);
}

// Prepares an array in host memory. The converted elements are in the first half of the array itself. If the
// ranks share this memory, they can sum it there without a copy.
void narrow_in_place(const WireArray& array) {
  const auto [values, count, dtype] = array.elements;
  if (array.wire_dtype != dtype)
    narrow(array.wire_dtype, static_cast<float*>(values), count, array.divisor);
  else if (array.divisor != 1)
    divide(dtype, values, values, count, array.divisor);
}

// Prepares an array on a device, and returns it in separate memory. The elements are first converted, and
// then divided in the type that is sent.
Memory narrowed(const WireArray& array) {
  const auto [values, count, dtype] = array.elements;
  Memory narrow = array.space.take(count * dtype_bytes(array.wire_dtype), array.stream);
  array.space.copy({narrow.get(), array.wire_dtype, values, dtype, count}, array.stream);
  if (array.divisor != 1)
    array.space.divide({narrow.get(), count, array.wire_dtype}, array.divisor, array.stream);
  return narrow;
}

}  // namespace

// On a device, the engine divides the elements before the sum. It cannot do this for 8-bit floats, so they
// are scaled here.
void WireSum::start(const WireArray& array, const char* note) {
  space_ = &array.space;
  stream_ = array.stream;
  elements_ = array.elements;
  wire_dtype_ = array.wire_dtype;
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = wire_dtype_;
  call.op = DSC_OP_SUM;
  call.recv = elements_.data;
  call.count = elements_.count;
  call.stream = stream_;
  std::snprintf(call.note, sizeof call.note, "%s", note);
  if (!space_->in_stream_order()) {
    narrow_in_place(array);
  } else if (wire_dtype_ != elements_.dtype) {
    narrow_ = narrowed(array);
    call.recv = narrow_.get();
  } else if (dtype_bytes(wire_dtype_) == 1) {
    space_->scale(elements_, 1.0 / array.divisor, stream_);
  } else {
    call.prescale = 1.0 / array.divisor;
  }
  call.send = call.recv;
  work_ = array.group.start(call);
}

void WireSum::finish() {
  work_.reset();
  if (narrow_) {
    space_->copy({elements_.data, elements_.dtype, narrow_.get(), wire_dtype_, elements_.count}, stream_);
    narrow_.reset();
  } else if (!space_->in_stream_order() && wire_dtype_ != elements_.dtype) {
    widen(wire_dtype_, static_cast<float*>(elements_.data), elements_.count);
  }
}

}  // namespace dsc
