// Streams with one worker thread each, and events, which are positions in streams.
#include <algorithm>
#include <thread>

#include "cuda_api.hpp"
#include "cuda_state.hpp"

namespace fake_gpu {
namespace {

thread_local bool inside_host_function = false;

// The worker of a stream: executes its work in order until the stream is closed and empty.
void work(const std::shared_ptr<Stream>& stream) {
  Driver& state = driver();
  std::unique_lock lock(state.lock);
  while (true) {
    stream->changed.wait(lock, [&] { return !stream->tasks.empty() || stream->closed; });
    if (stream->tasks.empty()) return;
    for (const Moment& moment : stream->tasks.front().after) moment.wait(lock);
    const std::function<void()>& run = stream->tasks.front().action.run;
    if (run && state.dead == kOk) {
      lock.unlock();
      run();
      lock.lock();
    }
    Task done = std::move(stream->tasks.front());
    stream->tasks.pop_front();
    ++stream->finished;
    stream->changed.notify_all();
    lock.unlock();
    done = {};  // releases it now, because it may hold large data
    lock.lock();
  }
}

std::shared_ptr<Stream> thread_stream(Driver& state, Context* context) {
  struct Own {
    std::map<Context*, std::shared_ptr<Stream>> streams;
    ~Own() {
      if (in_forked_child()) return;
      const std::lock_guard lock(driver().lock);
      for (const auto& [context, stream] : streams) {
        stream->closed = true;
        stream->changed.notify_all();
      }
    }
  };
  thread_local Own own;
  std::shared_ptr<Stream>& stream = own.streams[context];
  if (!stream) stream = make_stream(state, context, true);
  return stream;
}

void add_legacy_order(Driver& state, const Stream& stream, std::vector<Moment>& after) {
  const std::shared_ptr<Stream>& legacy = stream.context->legacy;
  if (stream.blocking && legacy->issued > legacy->finished) after.push_back({legacy, legacy->issued});
  if (&stream != legacy.get()) return;
  for (const auto& weak : state.all_streams)
    if (const auto other = weak.lock(); other && other->blocking && other->context == stream.context)
      if (other->issued > other->finished) after.push_back({other, other->issued});
}

// Returns whether the stream is the legacy stream and would have to wait for a blocking stream that captures.
bool waits_for_capture(Driver& state, const Stream& stream) {
  bool waits = false;
  if (&stream != stream.context->legacy.get()) return false;
  for (const auto& weak : state.all_streams)
    if (const auto other = weak.lock();
        other && other->blocking && other->capture && other->context == stream.context) {
      invalidate(*other->capture);
      waits = true;
    }
  return waits;
}

}  // namespace

bool in_host_function() { return inside_host_function; }

bool Moment::passed() const { return !stream || stream->finished >= ticket; }

void Moment::wait(std::unique_lock<std::mutex>& lock) const {
  const Moment own = *this;  // a copy, because the event may be recorded again meanwhile
  if (own.stream) own.stream->changed.wait(lock, [&] { return own.passed(); });
}

std::shared_ptr<Stream> make_stream(Driver& state, Context* context, bool blocking) {
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->blocking = blocking;
  std::erase_if(state.all_streams, [](const auto& weak) { return weak.expired(); });
  state.all_streams.push_back(stream);
  return stream;
}

std::shared_ptr<Stream> stream_of(Call& call, CudaStream* handle, Context* context) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number <= 1) return context->legacy;
  if (number == 2) return thread_stream(call.driver, context);
  const auto stream = call.driver.streams.find(handle);
  if (!stream) misuse("CUDA", "%s got what is no stream (any more)", call.name);
  return stream;
}

void drain(Call& call, const Context& context) {
  std::vector<Moment> moments;
  for (const auto& weak : call.driver.all_streams)
    if (const auto stream = weak.lock(); stream && stream->context == &context)
      moments.push_back({stream, stream->issued});
  for (const Moment& moment : moments) moment.wait(call.lock);
}

CudaResult enqueue(Call& call, const std::shared_ptr<Stream>& stream, Action action,
                   std::vector<Moment> after) {
  if (stream->capture) return capture_action(*stream->capture, *stream, std::move(action));
  if (waits_for_capture(call.driver, *stream)) return kCaptureImplicit;
  add_legacy_order(call.driver, *stream, after);
  if (stream->issued++ == 0) std::thread(work, stream).detach();
  if (action.order) {
    if (action.order->stream != stream) after.push_back(*action.order);
    *action.order = {stream, stream->issued};
  }
  stream->tasks.push_back({std::move(action), std::move(after)});
  stream->changed.notify_all();
  return kOk;
}

CudaResult enqueue_counted(Call& call, const std::shared_ptr<Stream>& stream, Action action) {
  if (++call.driver.launches == call.driver.sticky_at)
    action.run = [] {
      const std::lock_guard lock(driver().lock);
      driver().dead = kIllegalAddress;
    };
  return enqueue(call, stream, std::move(action));
}

static std::shared_ptr<Event> event_of(const Call& call, CudaEvent* handle) {
  auto event = call.driver.events.find(handle);
  if (!event) misuse("CUDA", "%s got what is no event (any more)", call.name);
  return event;
}

static CudaResult refuse_captured_event(const Event& event) {
  if (!event.capture) return kOk;
  invalidate(*event.capture);
  return kCapturedEvent;
}

static CudaResult refuse_capturing(const Stream& stream) {
  if (!stream.capture) return kOk;
  invalidate(*stream.capture);
  return kCaptureUnsupported;
}

}  // namespace fake_gpu

using namespace fake_gpu;

extern "C" {

CudaResult cuStreamCreateWithPriority(CudaStream** handle, unsigned flags, int) {
  return enter("cuStreamCreate", kCurrent, [&](Call& call) {
    if (flags > dsc::kCudaStreamNonBlocking) return kInvalidValue;
    const auto stream = make_stream(call.driver, call.context, flags == 0);
    *handle = stream->handle = call.driver.streams.add(stream);
    return kOk;
  });
}

CudaResult cuStreamCreate(CudaStream** stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

// Work that was enqueued before still runs.
CudaResult cuStreamDestroy_v2(CudaStream* handle) {
  return enter("cuStreamDestroy", kNothing, [&](Call& call) {
    const auto stream = call.driver.streams.remove(handle);
    if (!stream) return misused(kInvalidHandle, "cuStreamDestroy of what is no stream (any more)");
    if (stream->capture) {
      invalidate(*stream->capture);
      misuse("CUDA", "cuStreamDestroy of a stream that captures");
    }
    stream->closed = true;
    stream->changed.notify_all();
    return kOk;
  });
}

CudaResult cuStreamWaitEvent(CudaStream* handle, CudaEvent* event_handle, unsigned) {
  return enter("cuStreamWaitEvent", kCurrent, [&](Call& call) {
    const auto stream = stream_of(call, handle, call.context);
    const auto event = event_of(call, event_handle);
    if (!stream || !event) return kInvalidHandle;
    if (event->capture) return join_capture(stream, event->capture, event->frontier);
    if (stream->capture && event->moment) {
      invalidate(*stream->capture);
      return kCaptureIsolation;
    }
    if (!event->moment || event->moment->passed()) return kOk;
    return enqueue(call, stream, {}, {*event->moment});
  });
}

CudaResult cuStreamSynchronize(CudaStream* handle) {
  return enter("cuStreamSynchronize", kCurrent | kNoCapture, [&](Call& call) {
    const auto stream = stream_of(call, handle, call.context);
    if (!stream) return kInvalidHandle;
    if (const CudaResult refused = refuse_capturing(*stream); refused != kOk) return refused;
    std::vector<Moment> moments = {{stream, stream->issued}};
    if (stream == stream->context->legacy) add_legacy_order(call.driver, *stream, moments);
    for (const Moment& moment : moments) moment.wait(call.lock);
    return call.driver.dead;
  });
}

CudaResult cuStreamQuery(CudaStream* handle) {
  return enter("cuStreamQuery", kCurrent | kNoCapture, [&](Call& call) {
    const auto stream = stream_of(call, handle, call.context);
    if (!stream) return kInvalidHandle;
    if (const CudaResult refused = refuse_capturing(*stream); refused != kOk) return refused;
    return stream->finished == stream->issued ? kOk : kNotReady;
  });
}

CudaResult cuCtxSynchronize() {
  return enter("cuCtxSynchronize", kCurrent | kNoCapture, [&](Call& call) {
    drain(call, *call.context);
    return call.driver.dead;
  });
}

CudaResult cuLaunchHostFunc(CudaStream* handle, void (*function)(void*), void* argument) {
  return enter("cuLaunchHostFunc", kCurrent, [&](Call& call) {
    const auto stream = stream_of(call, handle, call.context);
    if (!stream) return kInvalidHandle;
    const auto run = [function, argument] {
      inside_host_function = true;
      function(argument);
      inside_host_function = false;
    };
    return enqueue(call, stream, action_of(run, {}));
  });
}

CudaResult cuEventCreate(CudaEvent** handle, unsigned flags) {
  return enter("cuEventCreate", kCurrent, [&](Call& call) {
    if (flags > 7) return kInvalidValue;
    const auto event = std::make_shared<Event>();
    event->context = call.context;
    *handle = call.driver.events.add(event);
    return kOk;
  });
}

CudaResult cuEventDestroy_v2(CudaEvent* handle) {
  return enter("cuEventDestroy", kNothing, [&](Call& call) {
    return call.driver.events.remove(handle)
               ? kOk
               : misused(kInvalidHandle, "cuEventDestroy of what is no event (any more)");
  });
}

CudaResult cuEventRecord(CudaEvent* event_handle, CudaStream* handle) {
  return enter("cuEventRecord", kCurrent, [&](Call& call) {
    const auto stream = stream_of(call, handle, call.context);
    const auto event = event_of(call, event_handle);
    if (!stream || !event) return kInvalidHandle;
    if (event->context != stream->context)
      return misused(kInvalidHandle, "cuEventRecord of one device's event on another's stream");
    if (stream->capture && stream->capture->invalidated) return kCaptureInvalidated;
    if (waits_for_capture(call.driver, *stream)) return kCaptureImplicit;
    event->capture = stream->capture;
    event->frontier = stream->frontier;
    event->moment.reset();
    if (stream->capture) return kOk;
    std::vector<Moment> before;
    add_legacy_order(call.driver, *stream, before);
    // The event must also come after the work that the legacy stream waits for. So the legacy stream gets an
    // empty action that waits for this work.
    if (!before.empty())
      if (const CudaResult result = enqueue(call, stream, {}); result != kOk) return result;
    event->moment = Moment{stream, stream->issued};
    return kOk;
  });
}

CudaResult cuEventQuery(CudaEvent* handle) {
  return enter("cuEventQuery", kNothing, [&](Call& call) {
    const auto event = event_of(call, handle);
    if (!event) return kInvalidHandle;
    if (const CudaResult refused = refuse_captured_event(*event); refused != kOk) return refused;
    if (const CudaResult refused = refuse_capture(call); refused != kOk) return refused;
    return !event->moment || event->moment->passed() ? kOk : kNotReady;
  });
}

CudaResult cuEventSynchronize(CudaEvent* handle) {
  return enter("cuEventSynchronize", kNothing, [&](Call& call) {
    const auto event = event_of(call, handle);
    if (!event) return kInvalidHandle;
    if (const CudaResult refused = refuse_captured_event(*event); refused != kOk) return refused;
    if (const CudaResult refused = refuse_capture(call); refused != kOk) return refused;
    if (event->moment) event->moment->wait(call.lock);
    return call.driver.dead;
  });
}

}  // extern "C"
