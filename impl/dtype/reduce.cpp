#include "dtype/reduce.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "dtype/fp_mode.hpp"
#include "dtype/kernels.hpp"
#include "dtype/user_op.hpp"

namespace dsc {
namespace {

Kernel find_kernel(int32_t dtype) {
  switch (dtype) {
    case DSC_DTYPE_F32:
    case DSC_DTYPE_F64:
      return float_kernel(dtype);
    case DSC_DTYPE_F16:
    case DSC_DTYPE_BF16:
      return half_kernel(dtype);
    case DSC_DTYPE_F8E4M3:
    case DSC_DTYPE_F8E5M2:
      return float8_kernel(dtype);
    default:
      return integer_kernel(dtype);
  }
}

CastKernel find_cast(int32_t dst_dtype, int32_t src_dtype) {
  if (dst_dtype != DSC_DTYPE_F32 && src_dtype != DSC_DTYPE_F32) return nullptr;
  const bool to_f32 = dst_dtype == DSC_DTYPE_F32;
  const int32_t other = to_f32 ? src_dtype : dst_dtype;
  const CastKernel half = half_cast_kernel(other, to_f32);
  return half != nullptr ? half : float8_cast_kernel(other, to_f32);
}

// Dividing by a power of two and multiplying by its inverse give the same bits, and multiplying is several
// times faster.
void set_divisor(KernelArgs& args, double divisor) {
  constexpr int kSafeExponent = 100;  // up to this exponent the inverse is a normal number, even in f32
  int exponent = 0;
  const bool power_of_two = std::fabs(std::frexp(divisor, &exponent)) == 0.5;
  if (power_of_two && std::abs(exponent) <= kSafeExponent) {
    args.postscale = 1.0 / divisor;
  } else {
    args.divisor = divisor;
  }
}

void run(int32_t dtype, const KernelArgs& args) {
  const Kernel kernel = find_kernel(dtype);
  if (kernel == nullptr) fail(DSC_ERR_UNSUPPORTED, "%s has no arithmetic", dtype_name(dtype));
  if (args.count == 0) return;
  const FpMode mode;
  kernel(args);
}

void require_float(const char* what, int32_t dtype) {
  if (op_supports(DSC_OP_AVG, dtype)) return;
  fail(DSC_ERR_UNSUPPORTED, "%s needs a floating-point type that can be reduced, got %s", what,
       dtype_name(dtype));
}

void check(const ReduceSpec& spec, int src_count) {
  if (spec.user != nullptr) return check_user_op(spec, src_count);
  if (!op_supports(spec.op, spec.dtype))
    fail(DSC_ERR_UNSUPPORTED, "%s of %s: %s", op_name(spec.op), dtype_name(spec.dtype),
         op_unsupported_reason(spec.op, spec.dtype));
  if (src_count < 1) fail(DSC_ERR_INTERNAL, "reduce expects at least 1 source, got %d", src_count);
  if (spec.divisor < 1) fail(DSC_ERR_INTERNAL, "reduce expects a divisor of 1 or more, got %d", spec.divisor);
  if (spec.prescale != 1.0) require_float("a scale", spec.dtype);
}

void scan(int32_t dtype, const void* const* srcs, int src_count, size_t count, NonFinite& report) {
  const ScanKernel kernel = scan_kernel(dtype);
  if (kernel == nullptr) return;
  for (int s = 0; s < src_count; ++s) kernel(srcs[s], count, s, report);
}

constexpr size_t kFewElements = 16;

template <typename T>
[[gnu::noinline]] void sum_few(const void* const* srcs, int src_count, void* dst, size_t count) {
  const auto load = [](const void* array, size_t i) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(array) + i * sizeof value, sizeof value);
    return value;
  };
  for (size_t i = 0; i < count; ++i) {
    T sum = load(srcs[0], i);
    for (int s = 1; s < src_count; ++s) sum += load(srcs[s], i);
    if (sum != sum) sum = std::numeric_limits<T>::quiet_NaN();
    std::memcpy(static_cast<std::byte*>(dst) + i * sizeof sum, &sum, sizeof sum);
  }
}

// Finding and entering a kernel takes longer than adding a few numbers. Plain sums of few numbers are
// therefore added here, with the same bits. Returns false for all other reductions.
bool is_few(const ReduceSpec& spec, size_t count) noexcept {
  return count <= kFewElements && spec.op == DSC_OP_SUM && spec.dtype == DSC_DTYPE_F32 &&
         spec.user == nullptr && spec.prescale == 1.0;
}

// glibc copies this many bytes with the instruction "rep movsb". On AMD Zen 3 and 4 it is ten times slower if
// the destination begins less than 32 bytes after the source within a page (glibc bug 30994). For example,
// large memory of malloc() begins 16 bytes after the start of a page, and shared memory at the start of one.
bool is_slow_in_memcpy(const void* dst, const void* src, size_t bytes) noexcept {
  constexpr size_t kMinBytes = size_t{2} << 10;
  constexpr uintptr_t kPage = 4096, kNear = 32;
  const uintptr_t apart = (reinterpret_cast<uintptr_t>(dst) - reinterpret_cast<uintptr_t>(src)) % kPage;
  return bytes >= kMinBytes && apart > 0 && apart < kNear;
}

}  // namespace

void NonFinite::add(const NonFinite& part, size_t start) {
  count += part.count;
  if (part.source < 0) return;
  const size_t at = start + part.index;
  if (source >= 0 && (source < part.source || (source == part.source && index <= at))) return;
  source = part.source;
  index = at;
}

// Computes an average as a sum with a divisor.
void reduce(const ReduceSpec& spec, const void* const* srcs, int src_count, void* const* dsts, int dst_count,
            size_t count, NonFinite* report) {
  if (is_few(spec, count) && src_count > 1 && dst_count == 1 && report == nullptr) {
    const FpMode mode;
    return sum_few<float>(srcs, src_count, dsts[0], count);
  }
  check(spec, src_count);
  if (spec.user != nullptr) {
    if (report != nullptr) scan(spec.dtype, srcs, src_count, count, *report);
    return reduce_by_user(spec, srcs, src_count, dsts, dst_count, count);
  }
  KernelArgs args{srcs, src_count, dsts, dst_count, count, spec.op};
  args.prescale = spec.prescale;
  args.streamed = spec.streamed;
  args.report = report;
  if (spec.op == DSC_OP_AVG) {
    args.op = DSC_OP_SUM;
    set_divisor(args, spec.divisor);
  }
  run(spec.dtype, args);
}

void multiply(int32_t dtype, void* dst, const void* src, size_t count, double factor) {
  require_float("multiply", dtype);
  KernelArgs args{&src, 1, &dst, 1, count, DSC_OP_SUM};
  args.prescale = factor;
  run(dtype, args);
}

void divide(int32_t dtype, void* dst, const void* src, size_t count, double divisor) {
  require_float("divide", dtype);
  KernelArgs args{&src, 1, &dst, 1, count, DSC_OP_SUM};
  set_divisor(args, divisor);
  run(dtype, args);
}

void add(int32_t dtype, void* dst, const void* src, size_t count) {
  const void* srcs[] = {dst, src};
  reduce({dtype, DSC_OP_SUM}, srcs, 2, &dst, 1, count);
}

void cast(int32_t dst_dtype, void* dst, int32_t src_dtype, const void* src, size_t count) {
  if (dst_dtype == src_dtype && is_dtype(src_dtype))
    return copy_bytes(dst, src, count * dtype_bytes(src_dtype));
  const CastKernel kernel = find_cast(dst_dtype, src_dtype);
  if (kernel == nullptr)
    fail(DSC_ERR_UNSUPPORTED,
         "no conversion from %s to %s: one must be f32, the other f16, bf16, f8e4m3 or f8e5m2",
         dtype_name(src_dtype), dtype_name(dst_dtype));
  const FpMode mode;
  kernel(dst, src, count);
}

void copy_bytes(void* dst, const void* src, size_t bytes, bool non_temporal) noexcept {
  if (bytes == 0 || dst == src) return;
  if (!non_temporal && !is_slow_in_memcpy(dst, src, bytes)) {
    std::memcpy(dst, src, bytes);
    return;
  }
  KernelArgs args{&src, 1, &dst, 1, bytes, DSC_OP_BOR};  // with one source, BOR copies its bytes
  args.streamed = non_temporal ? 1 : 0;
  run(DSC_DTYPE_U8, args);
}

void take(void* dst, void* src, size_t bytes, bool non_temporal) {
  const void* source = src;
  void* both[] = {dst, src};
  KernelArgs args{&source, 1, both, 2, bytes, DSC_OP_BOR};
  args.streamed = non_temporal ? 1 : 0;
  run(DSC_DTYPE_U8, args);
}

}  // namespace dsc
