// The memory of a ring on a device. The steps of a pass wait for each other on its stream, and not on the
// host.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "context_parallel/ring_memory.hpp"
#include "device/context.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

class DeviceRingMemory final : public RingMemory {
 public:
  DeviceRingMemory(Comm& channel, const RingSizes& sizes)
      : RingMemory(channel, sizes), context_(*channel.device_context()) {}
  ~DeviceRingMemory() override;

  void check(void* stream, int32_t grad_dtype) const override;
  void follow(void* stream) override;
  void zero(void* at, size_t bytes) override;
  void add(int32_t dtype, void* sum, const void* more, size_t count) override;
  void mark() override;
  bool wait_idle(Deadline deadline) override;

 private:
  const Device& device() const noexcept { return *context_.device; }
  void* allocate(size_t bytes) override { return channel().allocate_on_device(bytes); }

  const DeviceContext context_;
  DeviceStream* stream_ = nullptr;
  PooledEvent marked_;
};

DeviceRingMemory::~DeviceRingMemory() {
  bool idle = false;
  call_out([&] { idle = wait_idle(Deadline::after_ms(channel().timeout_ms())); });
  if (idle) return;
  log(DSC_LOG_WARN, "%zu bytes of a ring are kept: its pass on the device did not end within %d ms", bytes(),
      channel().timeout_ms());
  keep();
}

void DeviceRingMemory::check(void* stream, int32_t grad_dtype) const {
  const DeviceScope scope(device());
  if (is_capturing(device(), static_cast<DeviceStream*>(stream)))
    fail(
        DSC_ERR_STATE,
        "the stream of the pass is being captured in a graph, expected one that is not: ranks compare passes "
        "on the host");
  if (grad_dtype == 0) return;
  if (!is_floating(grad_dtype))
    fail(DSC_ERR_UNSUPPORTED, "grad_dtype is %s, expected a floating type: a device adds no other gradients",
         dtype_name(grad_dtype));
  static_cast<void>(context_.kernels->get());  // throws where the library has none
}

void DeviceRingMemory::follow(void* stream) {
  stream_ = static_cast<DeviceStream*>(stream);
  if (!marked_.get()) return;
  const DeviceScope scope(device());
  device().wait(stream_, marked_.get());
}

void DeviceRingMemory::zero(void* at, size_t bytes) {
  const DeviceScope scope(device());
  device().zero(reinterpret_cast<DeviceAddress>(at), bytes, stream_);
}

void DeviceRingMemory::add(int32_t dtype, void* sum, const void* more, size_t count) {
  const auto to = reinterpret_cast<DeviceAddress>(sum), from = reinterpret_cast<DeviceAddress>(more);
  const DeviceScope scope(device());
  context_.kernels->get().sum_parts({.from = std::min(to, from),
                                     .to = to,
                                     .count = count,
                                     .n_parts = 2,
                                     .dtype = dtype,
                                     .part_bytes = std::max(to, from) - std::min(to, from)},
                                    stream_);
}

void DeviceRingMemory::mark() {
  const DeviceScope scope(device());
  PooledEvent event = context_.events->take();
  device().record(event.get(), stream_);
  marked_ = std::move(event);
}

bool DeviceRingMemory::wait_idle(Deadline deadline) {
  return !marked_.get() || wait_for(device(), marked_.get(), deadline);
}

}  // namespace

std::unique_ptr<RingMemory> RingMemory::on_device(Comm& channel, const RingSizes& sizes) {
  return std::make_unique<DeviceRingMemory>(channel, sizes);
}

}  // namespace dsc
