#include "context_parallel/ring_memory.hpp"

#include <cstring>

#include "base/guard.hpp"
#include "comm/memory.hpp"
#include "dtype/reduce.hpp"

namespace dsc {
namespace {

constexpr size_t kAlignment = 64;  // areas do not share cache lines, and kernels are fast there

size_t aligned(size_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class HostRingMemory final : public RingMemory {
 public:
  HostRingMemory(Comm& channel, const RingSizes& sizes) noexcept : RingMemory(channel, sizes) {}

  void check(void*, int32_t) const override {}
  void follow(void*) override {}
  void zero(void* at, size_t bytes) override { std::memset(at, 0, bytes); }
  void add(int32_t dtype, void* sum, const void* more, size_t count) override {
    dsc::add(dtype, sum, more, count);
  }
  void mark() override {}
  bool wait_idle(Deadline) override { return true; }

 private:
  void* allocate(size_t bytes) override { return channel().allocate_memory(bytes); }
};

}  // namespace

std::unique_ptr<RingMemory> RingMemory::on_host(Comm& channel, const RingSizes& sizes) {
  return std::make_unique<HostRingMemory>(channel, sizes);
}

void RingMemory::Release::operator()(std::byte* memory) const noexcept {
  guard_thread([&] { release_memory(memory); }, [](const char*) {});
}

size_t RingMemory::bytes() const noexcept {
  return 2 * aligned(sizes_.block_bytes) + 3 * aligned(sizes_.grad_bytes);
}

void RingMemory::provide() {
  if (channel_.size() == 1 || areas_) return;
  areas_.reset(static_cast<std::byte*>(allocate(bytes())));
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
  const auto from = reinterpret_cast<uintptr_t>(buffer), own = reinterpret_cast<uintptr_t>(areas_.get());
  return areas_ && bytes > 0 && from < own + this->bytes() && own < from + bytes;
}

}  // namespace dsc
