// Streams and events of a device, released by their destructors.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "device/device.hpp"

namespace dsc {

// A stream that does not synchronize with the default stream.
class Stream {
 public:
  // Smaller values are more urgent; CUDA clamps values that are out of range.
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

// CU_STREAM_PER_THREAD: this handle means a different stream in every thread.
inline CudaStream* const kPerThreadStream = reinterpret_cast<CudaStream*>(2);

// Makes all later work on `later` wait for the work that is on `stream` now.
void order(const Device& device, EventPool& events, CudaStream* stream, CudaStream* later);
// Waits for the work that is on the stream now, or for the event. Returns false if the deadline passes first.
bool wait_for(const Device& device, EventPool& events, CudaStream* stream, Deadline deadline);
bool wait_for(const Device& device, CudaEvent* event, Deadline deadline);

// An event borrowed from a pool. The destructor returns it, even while streams wait for it:
// cuStreamWaitEvent() refers to the work that was recorded at the time of that call.
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

// Reuses events, because creating one is slow. Any thread may use it.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  // Creates `ready` events in advance.
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
