#include "hooks/wire.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"

namespace dsc {
namespace {

constexpr size_t kBlock = 2048;  // elements, so that a block stays in the first-level cache

// A block whose source and result overlap, which is the first one, goes through this.
struct alignas(64) Block {
  std::byte bytes[kBlock * sizeof(float)];
};

// Writes to the first half of an array of f32, from front to back. The division is in the type that is sent
// and comes before the sum, as in PyTorch's hooks.
void narrow(int32_t wire_dtype, float* values, size_t count, double divisor) {
  auto* sent = reinterpret_cast<std::byte*>(values);
  Block block;
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t n = std::min(kBlock, count - at);
    cast(wire_dtype, block.bytes, DSC_DTYPE_F32, values + at, n);
    divide(wire_dtype, sent + at * dtype_bytes(wire_dtype), block.bytes, n, divisor);
  }
}

// The inverse, from back to front.
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

}  // namespace

void WireSum::start(Comm& group, int32_t dtype, void* values, size_t count, int32_t wire_dtype,
                    double divisor, const char* note) {
  dtype_ = dtype;
  wire_dtype_ = wire_dtype;
  values_ = values;
  count_ = count;
  if (wire_dtype != dtype) {
    narrow(wire_dtype, static_cast<float*>(values), count, divisor);
  } else if (divisor != 1) {
    divide(dtype, values, values, count, divisor);
  }
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = wire_dtype;
  call.op = DSC_OP_SUM;
  call.send = values;
  call.recv = values;
  call.count = count;
  std::snprintf(call.note, sizeof call.note, "%s", note);
  work_ = group.start(call);
}

void WireSum::finish() {
  work_.reset();
  if (wire_dtype_ != dtype_) widen(wire_dtype_, static_cast<float*>(values_), count_);
}

}  // namespace dsc
