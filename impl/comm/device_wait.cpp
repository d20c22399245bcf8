#include "comm/device_wait.hpp"

#include "base/error.hpp"

namespace dsc {
namespace {

constexpr int kLookPeriodMs = 50;

}  // namespace

bool await_event(const Comm& group, DeviceEvent* event, const char* what, Deadline deadline) {
  const Device& device = *group.device_context()->device;
  const Deadline last = Deadline::after_ms(group.timeout_ms());
  while (!wait_for(device, event, sooner(sooner(deadline, last), Deadline::after_ms(kLookPeriodMs)))) {
    if (group.revoked()) throw Error(group.failure());
    if (deadline.passed()) return false;
    if (last.passed())
      fail(DSC_ERR_TIMEOUT, "%s of rank %d were not there after %d ms", what, group.rank(),
           group.timeout_ms());
  }
  return true;
}

void await_stream(const Comm& group, DeviceStream* stream, const char* what) {
  const DeviceContext& context = *group.device_context();
  const DeviceScope scope(*context.device);
  const PooledEvent event = context.events->take();
  context.device->record(event.get(), stream);
  await_event(group, event.get(), what);
}

void read_device(const Comm& group, void* to, DeviceAddress from, size_t bytes, DeviceStream* stream,
                 const char* what) {
  const Device& device = *group.device_context()->device;
  const DeviceScope scope(device);
  await_stream(group, stream, what);
  device.copy(reinterpret_cast<DeviceAddress>(to), from, bytes, stream);
  await_stream(group, stream, what);
}

}  // namespace dsc
