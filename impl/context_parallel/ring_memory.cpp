#include "context_parallel/ring_memory.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/overlap.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

// Areas are in different cache lines, and kernels are fast with this alignment.
constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

RingMemory::~RingMemory() {
  const int timeout_ms = space_->group().timeout_ms();
  bool idle = false;
  call_out([&] { idle = wait_idle(Deadline::after_ms(timeout_ms)); });
  if (idle) return;
  log(DSC_LOG_LEVEL_WARN, "%zu bytes of a ring are kept: its pass on the device did not end within %d ms",
      bytes(), timeout_ms);
  keep(std::move(areas_));
}

void RingMemory::check(void* stream, int32_t grad_dtype) const {
  if (!space_->in_stream_order()) return;
  if (space_->is_captured(stream))
    fail(DSC_ERR_STATE,
         "the stream of the pass is being captured in a graph, expected another stream: ranks compare passes "
         "on the host");
  if (grad_dtype == 0) return;
  if (!is_floating(grad_dtype))
    fail(DSC_ERR_UNSUPPORTED,
         "grad_dtype is %s, expected a floating-point type: a device can add no other gradients",
         dtype_name(grad_dtype));
  space_->prepare();
}

void RingMemory::follow(void* stream) {
  stream_ = stream;
  space_->follow(stream_, marked_);
}

size_t RingMemory::bytes() const noexcept {
  return 2 * aligned(sizes_.block_bytes) + 3 * aligned(sizes_.grad_bytes);
}

void RingMemory::provide() {
  if (space_->group().size() > 1 && !areas_) areas_ = space_->allocate(bytes());
}

std::byte* RingMemory::block(int step) const noexcept {
  return areas_.get() + static_cast<size_t>(step % 2) * aligned(sizes_.block_bytes);
}

std::byte* RingMemory::sum(int step) const noexcept {
  return areas_.get() + 2 * aligned(sizes_.block_bytes) +
         static_cast<size_t>(step % 2) * aligned(sizes_.grad_bytes);
}

std::byte* RingMemory::incoming_sum() const noexcept {
  return areas_.get() + 2 * aligned(sizes_.block_bytes) + 2 * aligned(sizes_.grad_bytes);
}

bool RingMemory::overlaps(const void* buffer, size_t bytes) const noexcept {
  return areas_ && overlap(buffer, bytes, areas_.get(), this->bytes());
}

}  // namespace dsc
