#include "cuda_internals.hpp"

#include "cuda_api.hpp"

namespace fake_gpu {
namespace {

CudaResult usable() {
  return enter("NCCL", kNothing, [](Call&) { return kOk; });
}

int current_device() { return current_context() ? current_context()->device : -1; }

int card(int device) {
  const std::lock_guard lock(driver().lock);
  return driver().contexts[static_cast<size_t>(device)]->card;
}

bool holds(int device, const void* memory, size_t bytes) {
  const std::lock_guard lock(driver().lock);
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const MemoryLocation location = location_of(driver(), begin);
  return location.block && location.block->kind == dsc::CudaMemoryType::device &&
         (location.block->device == device || location.block->managed) &&
         begin + bytes <= location.base + location.block->bytes;
}

bool is_stream(int device, CudaStream* handle) {
  std::unique_lock lock(driver().lock);
  Context* const context = driver().contexts[static_cast<size_t>(device)].get();
  Call call{driver(), lock, context, "NCCL"};
  const auto stream = context->retained ? stream_of(call, handle, context) : nullptr;
  return stream && stream->context == context;
}

// Captures one action on several streams.
CudaResult capture_joined(Call& call, const std::vector<std::shared_ptr<Stream>>& streams, Action action) {
  const std::shared_ptr<Stream>& first = streams[0];
  for (const auto& stream : streams)
    if (stream != first)
      if (const auto bad = join_capture(first, stream->capture, stream->frontier); bad != kOk) return bad;
  if (const auto bad = enqueue(call, first, std::move(action)); bad != kOk) return bad;
  for (const auto& stream : streams) stream->frontier = first->frontier;
  return kOk;
}

CudaResult enqueue_joined(Call& call, const std::vector<std::shared_ptr<Stream>>& streams, Action action) {
  size_t capturing = 0;
  for (const auto& stream : streams) capturing += stream->capture != nullptr;
  if (capturing == streams.size()) return capture_joined(call, streams, std::move(action));
  if (capturing > 0) return misused(kInvalidValue, "some streams of one group capture and some do not");
  std::vector<Moment> before;
  for (const auto& stream : streams)
    if (stream != streams[0]) before.push_back({stream, stream->issued});
  if (const auto bad = enqueue(call, streams[0], std::move(action), std::move(before)); bad != kOk)
    return bad;
  const Moment done{streams[0], streams[0]->issued};
  for (const auto& stream : streams)
    if (stream != streams[0])
      if (const auto bad = enqueue(call, stream, {}, {done}); bad != kOk) return bad;
  return kOk;
}

CudaResult enqueue_on(int device, const std::vector<CudaStream*>& handles, Action action) {
  return enter("NCCL", kNothing, [&](Call& call) {
    Context* const context = call.driver.contexts[static_cast<size_t>(device)].get();
    if (!context->retained) return misused(kContextDestroyed, "NCCL on a device that nobody retains");
    std::vector<std::shared_ptr<Stream>> streams;
    for (CudaStream* const handle : handles) {
      streams.push_back(stream_of(call, handle, context));
      if (!streams.back()) return kInvalidHandle;
    }
    return enqueue_joined(call, streams, std::move(action));
  });
}

bool passed(const Moment& moment) {
  const std::lock_guard lock(driver().lock);
  return moment.passed();
}

void wait(const Moment& moment) {
  std::unique_lock lock(driver().lock);
  moment.wait(lock);
}

constexpr CudaInternals kInternals = {usable,        current_device, card,   holds,
                                      is_stream,     enqueue_on,     passed, wait,
                                      cuMemAlloc_v2, cuMemFree_v2,   misuse};

}  // namespace
}  // namespace fake_gpu

const fake_gpu::CudaInternals* fake_cuda_internals() { return &fake_gpu::kInternals; }
