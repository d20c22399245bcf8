// Streams and events of a device, given back by themselves.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "device/device.hpp"

namespace dsc {

// One that does not wait for the default stream.
class Stream {
 public:
  // Smaller priorities are more urgent; out of range they are the nearest.
  Stream(std::shared_ptr<const Device> device, int priority);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  CudaStream* get() const noexcept { return stream_; }

 private:
  const std::shared_ptr<const Device> device_;
  CudaStream* stream_ = nullptr;
};

class EventPool;

// The handle that means another stream in every thread: CU_STREAM_PER_THREAD.
inline CudaStream* const kPerThreadStream = reinterpret_cast<CudaStream*>(2);

// Makes `later` wait for what is on `stream` now.
void order(const Device& device, EventPool& events, CudaStream* stream, CudaStream* later);
// False when what is on the stream now is not over by then.
bool wait_for(const Device& device, EventPool& events, CudaStream* stream, Deadline deadline);
bool wait_for(const Device& device, CudaEvent* event, Deadline deadline);

// Goes back to its pool, also while it is waited for: what was told to wait knows what for.
class PooledEvent {
 public:
  PooledEvent() noexcept = default;
  PooledEvent(std::shared_ptr<EventPool> pool, CudaEvent* event) noexcept
      : pool_(std::move(pool)), event_(event) {}
  ~PooledEvent() { release(); }
  PooledEvent(PooledEvent&& other) noexcept
      : pool_(std::move(other.pool_)), event_(std::exchange(other.event_, nullptr)) {}
  PooledEvent& operator=(PooledEvent&& other) noexcept {
    if (this != &other) {
      release();
      pool_ = std::move(other.pool_);
      event_ = std::exchange(other.event_, nullptr);
    }
    return *this;
  }

  CudaEvent* get() const noexcept { return event_; }
  void release() noexcept;

 private:
  std::shared_ptr<EventPool> pool_;
  CudaEvent* event_ = nullptr;
};

// Any thread.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  // With so many events ready.
  EventPool(std::shared_ptr<const Device> device, size_t ready);
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  PooledEvent take();

 private:
  friend class PooledEvent;
  CudaEvent* make() const;
  void give_back(CudaEvent* event) noexcept;

  const std::shared_ptr<const Device> device_;
  Mutex mutex_;
  std::vector<CudaEvent*> free_ DSC_GUARDED_BY(mutex_);
};

}  // namespace dsc
