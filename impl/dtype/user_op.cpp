#include "dtype/user_op.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "base/fixed_text.hpp"
#include "base/guard.hpp"
#include "dtype/fp_mode.hpp"

namespace dsc {
namespace {

constexpr size_t kTileBytes = 32 << 10;  // two tiles approximately fill the first-level cache
constexpr std::align_val_t kTileAlignment{64};

struct FreeTile {
  void operator()(std::byte* tile) const { ::operator delete(tile, kTileAlignment); }
};
using Tile = std::unique_ptr<std::byte, FreeTile>;

Tile make_tile(size_t bytes) { return Tile(static_cast<std::byte*>(::operator new(bytes, kTileAlignment))); }

bool is_aligned(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

// Calls the function in the library's floating-point mode, and marks the thread as inside a callback.
void call(const UserOp& op, int32_t dtype, const void* in, void* inout, size_t count) {
  char error[256];
  error[0] = '\0';
  int32_t returned = 0;
  Failure thrown;
  const bool ended = capture(
      [&] {
        const CallbackScope scope;
        const FpMode mode;
        returned = op.function({in, inout, count, dtype, error});
      },
      [&](const Error& error) { thrown = error.failure(); });
  if (!ended) fail(DSC_ERR_CALLBACK, "user operation %" PRIu64 " threw: %s", op.id, thrown.text.c_str());
  if (returned == 0) return;
  const std::string why = bounded_text(error);
  fail(DSC_ERR_CALLBACK, "user operation %" PRIu64 " returned %d%s%s", op.id, returned,
       why.empty() ? "" : ": ", why.c_str());
}

}  // namespace

void check_user_op(const ReduceSpec& spec, int src_count) {
  if (!is_dtype(spec.dtype)) fail(DSC_ERR_UNSUPPORTED, "%d is not an element type", spec.dtype);
  if (src_count < 1) fail(DSC_ERR_INTERNAL, "reduce expects at least 1 source, got %d", src_count);
  if (spec.prescale != 1.0 || spec.divisor != 1)
    fail(DSC_ERR_UNSUPPORTED, "a user operation takes no scale and no divisor");
}

void reduce_by_user(const ReduceSpec& spec, const void* const* srcs, int src_count, void* const* dsts,
                    int dst_count, size_t count) {
  const size_t bytes_each = dtype_bytes(spec.dtype);
  const size_t tile_count = std::min(count, kTileBytes / bytes_each);
  const Tile accumulator = make_tile(tile_count * bytes_each);
  Tile aligned;  // holds copies of unaligned sources
  for (size_t at = 0; at < count; at += tile_count) {
    const size_t n = std::min(tile_count, count - at);
    const size_t bytes = n * bytes_each;
    const auto part = [&](int s) { return static_cast<const std::byte*>(srcs[s]) + at * bytes_each; };
    std::memcpy(accumulator.get(), part(0), bytes);
    for (int s = 1; s < src_count; ++s) {
      const void* in = part(s);
      if (!is_aligned(in, bytes_each)) {
        if (!aligned) aligned = make_tile(tile_count * bytes_each);
        in = std::memcpy(aligned.get(), in, bytes);
      }
      call(*spec.user, spec.dtype, in, accumulator.get(), n);
    }
    for (int d = 0; d < dst_count; ++d)
      copy_bytes(static_cast<std::byte*>(dsts[d]) + at * bytes_each, accumulator.get(), bytes,
                 d < spec.streamed);
  }
}

}  // namespace dsc
