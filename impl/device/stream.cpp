#include "device/stream.hpp"

#include <sched.h>
#include <time.h>

#include "base/guard.hpp"

namespace dsc {
namespace {

constexpr int kEagerLooks = 100;  // polls before the thread sleeps between polls
constexpr timespec kPause{0, 50'000};

}  // namespace

Stream::Stream(std::shared_ptr<const Device> device, int priority) : device_(std::move(device)) {
  const DeviceScope scope(*device_);
  device_->check(device_->cuda().stream_create_with_priority(&stream_, kCudaStreamNonBlocking, priority),
                 "cuStreamCreateWithPriority");
}

Stream::~Stream() {
  call_out([&] {
    const DeviceScope scope(*device_);
    device_->cuda().stream_destroy(stream_);
  });
}

void order(const Device& device, EventPool& events, CudaStream* stream, CudaStream* later) {
  if (stream == later) return;
  const DeviceScope scope(device);
  const PooledEvent event = events.take();
  device.record(event.get(), stream);
  device.wait(later, event.get());
}

bool wait_for(const Device& device, EventPool& events, CudaStream* stream, Deadline deadline) {
  const DeviceScope scope(device);
  const PooledEvent event = events.take();
  device.record(event.get(), stream);
  return wait_for(device, event.get(), deadline);
}

bool wait_for(const Device& device, CudaEvent* event, Deadline deadline) {
  const DeviceScope scope(device);
  for (int looks = 0;; ++looks) {
    const CudaResult result = device.cuda().event_query(event);
    if (result == CudaResult::success) return true;
    if (result != CudaResult::not_ready) device.check(result, "cuEventQuery");
    if (deadline.passed()) return false;
    if (looks < kEagerLooks)
      sched_yield();
    else
      nanosleep(&kPause, nullptr);
  }
}

EventPool::EventPool(std::shared_ptr<const Device> device, size_t ready) : device_(std::move(device)) {
  const DeviceScope scope(*device_);
  const MutexLock lock(mutex_);
  free_.reserve(ready);
  while (free_.size() < ready) free_.push_back(make());
}

EventPool::~EventPool() {
  call_out([&] {
    const DeviceScope scope(*device_);
    const MutexLock lock(mutex_);
    for (CudaEvent* event : free_) device_->cuda().event_destroy(event);
  });
}

CudaEvent* EventPool::make() const {
  CudaEvent* event = nullptr;
  device_->check(device_->cuda().event_create(&event, kCudaEventDisableTiming), "cuEventCreate");
  return event;
}

// Creates an event if no event is idle, without holding the lock.
PooledEvent EventPool::take() {
  CudaEvent* event = nullptr;
  {
    const MutexLock lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    }
  }
  if (!event) {
    const DeviceScope scope(*device_);
    event = make();
  }
  return {shared_from_this(), event};
}

void EventPool::give_back(CudaEvent* event) noexcept {
  const bool kept = call_out([&] {
    const MutexLock lock(mutex_);
    free_.push_back(event);
  });
  if (!kept) device_->cuda().event_destroy(event);
}

void PooledEvent::release() noexcept {
  if (event_) pool_->give_back(std::exchange(event_, nullptr));
  pool_.reset();
}

}  // namespace dsc
