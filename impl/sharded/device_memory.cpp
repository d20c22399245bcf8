// Full buffers and shards in memory of a device. All work is put on one stream of this object's own, so that
// memory which is given back may be used again at once: what uses it next comes later on that stream.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/device_wait.hpp"
#include "comm/memory.hpp"
#include "comm/tensor.hpp"
#include "device/buffer.hpp"
#include "device/context.hpp"
#include "dtype/dtype.hpp"
#include "sharded/pool_slots.hpp"
#include "sharded/shard_memory.hpp"

namespace dsc {
namespace {

DeviceAddress address_of(const void* memory) { return reinterpret_cast<DeviceAddress>(memory); }
DeviceStream* stream_of(void* stream) { return static_cast<DeviceStream*>(stream); }

// Units that have memory for ever lie one after another; others get a part of the pool while they are open,
// or memory of their own where the pool is used up.
class DeviceUnits {
 public:
  DeviceUnits(const FlatOffsets& full, bool is_kept, size_t pool_bytes)
      : units_(full.units),
        states_(full.units.size()),
        is_kept_(is_kept),
        arena_bytes_(is_kept ? full.bytes : pool_bytes),
        slots_(is_kept ? 0 : pool_bytes),
        held_(arena_bytes_) {}

  size_t arena_bytes() const noexcept { return arena_bytes_; }
  bool is_kept() const noexcept { return is_kept_; }
  size_t bytes(size_t unit) const noexcept { return units_[unit].bytes; }
  size_t held() const noexcept { return held_; }

  std::byte* buffer(std::byte* arena, size_t unit) const noexcept {
    const State& state = states_[unit];
    if (state.own) return static_cast<std::byte*>(state.own->data());
    return arena + (is_kept_ ? units_[unit].offset : state.slot);
  }

  size_t growth(size_t unit) const {
    return is_kept_ || states_[unit].open || slots_.find(bytes(unit)) ? 0 : bytes(unit);
  }

  void open(size_t unit, const Device& device, DeviceStream* stream) {
    State& state = states_[unit];
    if (is_kept_ || state.open || bytes(unit) == 0) return;
    if (const auto slot = slots_.find(bytes(unit))) {
      state.slot = *slot;
      slots_.take(*slot, bytes(unit));
    } else {
      state.own = std::make_unique<DeviceBuffer>(device, bytes(unit), stream);
      held_ += bytes(unit);
    }
    state.open = true;
  }

  void close(size_t unit) {
    State& state = states_[unit];
    if (!state.open) return;
    if (state.own)
      held_ -= bytes(unit);
    else
      slots_.release(state.slot);
    state = {};
  }

  void keep() noexcept {
    for (State& state : states_) static_cast<void>(state.own.release());
  }

 private:
  struct State {
    bool open = false;
    size_t slot = 0;                    // bytes from the start of the pool
    std::unique_ptr<DeviceBuffer> own;  // in place of a slot
  };

  std::vector<FlatOffsets::Unit> units_;
  std::vector<State> states_;
  bool is_kept_;
  size_t arena_bytes_;
  PoolSlots slots_;
  size_t held_;
};

class DeviceMemory final : public ShardMemory {
 public:
  DeviceMemory(Comm& group, const ShardMemoryOptions& options)
      : context_(*group.device_context()),
        group_(group),
        kernels_(context_.kernels->get()),
        stream_(context_.device, 0),
        between_(context_.device, 0),
        units_(options.full, options.keeps_full, options.pool_bytes),
        arena_(allocate(units_.arena_bytes())),
        shards_(options.shard_bytes > 0 ? allocate(options.shard_bytes) : nullptr) {}

  std::byte* views() const noexcept override { return units_.is_kept() ? arena_.get() : nullptr; }
  std::byte* buffer(size_t unit) const noexcept override { return units_.buffer(arena_.get(), unit); }
  bool is_dirty(size_t) const noexcept override { return !units_.is_kept(); }
  std::byte* shards() const noexcept override { return shards_.get(); }
  size_t held() const noexcept override { return units_.held(); }
  size_t growth(size_t unit) const override { return units_.growth(unit); }
  void open(size_t unit, bool) override { units_.open(unit, device(), stream_.get()); }
  void close(size_t unit) override {
    if (units_.is_kept()) return zero(buffer(unit), units_.bytes(unit));
    units_.close(unit);
  }
  void keep() noexcept override {
    units_.keep();
    static_cast<void>(norm_.release());
    static_cast<void>(arena_.release());
    static_cast<void>(shards_.release());
  }
  std::shared_ptr<std::byte> scratch(size_t bytes) override {
    const auto buffer = std::make_shared<DeviceBuffer>(device(), bytes, stream_.get());
    return {buffer, static_cast<std::byte*>(buffer->data())};
  }

  bool in_stream_order() const noexcept override { return true; }
  void* stream(Queue queue) const noexcept override {
    return queue == Queue::kMain ? stream_.get() : between_.get();
  }
  void check_stream(void* stream) const override;
  void check_gradient(const void* gradient, const std::string& who) const override;
  void follow(void* stream) override { order(device(), *context_.events, stream_of(stream), stream_.get()); }
  void lead(void* stream) override { order(device(), *context_.events, stream_.get(), stream_of(stream)); }
  Failure await(Work& work, Queue queue) override;
  void wait() override;
  bool wait_idle(Deadline deadline) noexcept override;

  void put(const ElementCopy& copy) override;
  void zero(std::byte* at, size_t bytes) override;
  void multiply(const GradientShard& elements, double factor) override;
  void divide(const GradientShard& elements, int divisor) override;
  double square_sum(std::span<const GradientShard> shards) override;

 private:
  struct ReleaseMemory {
    void operator()(std::byte* memory) const { release_memory(memory); }
  };
  using Memory = std::unique_ptr<std::byte, ReleaseMemory>;

  const Device& device() const noexcept { return *context_.device; }
  Memory allocate(size_t bytes) const {
    return Memory(static_cast<std::byte*>(group_.allocate_on_device(std::max<size_t>(bytes, 1))));
  }
  void add(std::byte* to, const void* from, int32_t dtype, size_t count) const;

  const DeviceContext context_;
  Comm& group_;
  const Kernels& kernels_;
  Stream stream_;  // outlives what is freed in its order
  Stream between_;
  DeviceUnits units_;
  Memory arena_;
  Memory shards_;
  std::unique_ptr<DeviceBuffer> norm_;
};

void DeviceMemory::check_stream(void* stream) const {
  const DeviceScope scope(device());
  if (is_capturing(device(), stream_of(stream)))
    fail(DSC_ERR_UNSUPPORTED, "stream is being captured in a graph, expected one that is not");
}

void DeviceMemory::check_gradient(const void* gradient, const std::string& who) const {
  expect_gradient_on(group_, device().number(), gradient, who);
}

// An operation that is still running counts as a success; what fails later fails its group.
Failure DeviceMemory::await(Work& work, Queue queue) {
  Failure failure;
  capture([&] { work.wait_on(stream(queue), Deadline::never()); },
          [&](const Error& error) { failure = error.failure(); });
  return failure;
}

void DeviceMemory::wait() { await_stream(group_, stream_.get(), "the shards"); }

bool DeviceMemory::wait_idle(Deadline deadline) noexcept {
  bool idle = false;
  call_out([&] {
    idle = wait_for(device(), *context_.events, between_.get(), deadline) &&
           wait_for(device(), *context_.events, stream_.get(), deadline);
  });
  return idle;
}

void DeviceMemory::put(const ElementCopy& copy) {
  if (copy.count == 0) return;
  const DeviceScope scope(device());
  const size_t bytes = copy.count * dtype_bytes(copy.to_dtype);
  const bool converts = copy.from_dtype != copy.to_dtype;
  if (!converts && !copy.adds)
    return device().copy(address_of(copy.to), address_of(copy.from), bytes, stream_.get());
  if (!converts) return add(copy.to, copy.from, copy.to_dtype, copy.count);
  const auto converted = copy.adds ? scratch(bytes) : nullptr;
  kernels_.copy({.from = address_of(copy.from),
                 .to = address_of(converted ? converted.get() : copy.to),
                 .count = copy.count,
                 .from_dtype = copy.from_dtype,
                 .to_dtype = copy.to_dtype},
                stream_.get());
  if (converted) add(copy.to, converted.get(), copy.to_dtype, copy.count);
}

void DeviceMemory::add(std::byte* to, const void* from, int32_t dtype, size_t count) const {
  const DeviceAddress sum = address_of(to), part = address_of(from);
  kernels_.sum_parts({.from = std::min(sum, part),
                      .to = sum,
                      .count = count,
                      .n_parts = 2,
                      .dtype = dtype,
                      .part_bytes = std::max(sum, part) - std::min(sum, part)},
                     stream_.get());
}

void DeviceMemory::zero(std::byte* at, size_t bytes) {
  if (bytes == 0) return;
  const DeviceScope scope(device());
  device().zero(address_of(at), bytes, stream_.get());
}

void DeviceMemory::multiply(const GradientShard& elements, double factor) {
  if (elements.count == 0) return;
  const DeviceScope scope(device());
  const DeviceAddress at = address_of(elements.data);
  kernels_.copy({.from = at,
                 .to = at,
                 .count = elements.count,
                 .from_dtype = elements.dtype,
                 .to_dtype = elements.dtype,
                 .scale = factor},
                stream_.get());
}

void DeviceMemory::divide(const GradientShard& elements, int divisor) {
  if (elements.count == 0) return;
  const DeviceScope scope(device());
  const DeviceAddress at = address_of(elements.data);
  kernels_.sum_parts({.from = at,
                      .to = at,
                      .count = elements.count,
                      .n_parts = 1,
                      .dtype = elements.dtype,
                      .divisor = static_cast<double>(divisor)},
                     stream_.get());
}

// Waits for the stream before the copy too, with a deadline: a copy to memory that the driver does not know
// may wait for the stream itself, without one.
double DeviceMemory::square_sum(std::span<const GradientShard> shards) {
  const DeviceScope scope(device());
  if (!norm_) norm_ = std::make_unique<DeviceBuffer>(device(), Kernels::norm_bytes(), stream_.get());
  device().zero(norm_->address(), Kernels::norm_bytes(), stream_.get());
  for (const GradientShard& shard : shards) {
    if (shard.count == 0) continue;
    const DeviceAddress at = address_of(shard.data);
    kernels_.copy({.from = at,
                   .to = at,
                   .count = shard.count,
                   .from_dtype = shard.dtype,
                   .to_dtype = shard.dtype,
                   .norm = norm_->address()},
                  stream_.get());
  }
  Kernels::NormResult found{};
  read_device(group_, &found, norm_->address(), sizeof found, stream_.get(), "the gradients");
  return found.squared;
}

}  // namespace

std::unique_ptr<ShardMemory> make_device_memory(Comm& group, const ShardMemoryOptions& options) {
  return std::make_unique<DeviceMemory>(group, options);
}

}  // namespace dsc
