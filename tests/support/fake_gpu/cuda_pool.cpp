// Memory that is allocated and freed in stream order. The allocation is immediate, and memory of a graph is
// kept.
#include "cuda_api.hpp"
#include "cuda_state.hpp"

using namespace fake_gpu;

extern "C" {

CudaResult cuMemAllocAsync(dsc::CudaAddress* address, size_t bytes, dsc::CudaStream* stream) {
  dsc::CudaCaptureStatus status{};
  const CudaResult known = cuStreamIsCapturing(stream, &status);
  return known == kOk ? cuMemAlloc_v2(address, bytes) : known;
}

CudaResult cuMemFreeAsync(dsc::CudaAddress address, dsc::CudaStream* handle) {
  return enter("cuMemFreeAsync", kCurrent, [&](Call& call) {
    const auto stream = stream_of(call, handle, call.context);
    if (!stream) return kInvalidHandle;
    if (stream->capture) return kOk;
    Action action;
    const Context& context = *call.context;
    action.run = [address, &context, life = context.life] { free_from_stream(address, context, life); };
    return enqueue(call, stream, std::move(action));
  });
}

}  // extern "C"
