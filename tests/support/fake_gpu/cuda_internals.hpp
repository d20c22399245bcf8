// What the fake NCCL asks of the fake driver. It finds the table by name, so that neither is linked with the
// other.
#pragma once

#include "cuda_state.hpp"

namespace fake_gpu {

struct CudaInternals {
  CudaResult (*usable)();   // what any call would give
  int (*current_device)();  // -1: none
  int (*card)(int device);  // of the machine
  bool (*holds)(int device, const void* memory,
                size_t bytes);  // as one allocation; managed memory is everywhere
  bool (*is_stream)(int device, CudaStream* stream);
  // To all streams at once: executed by the first after what all have, before what all get next.
  CudaResult (*enqueue)(int device, const std::vector<CudaStream*>& streams, Action action);
  bool (*passed)(const Moment& moment);
  void (*wait)(const Moment& moment);
  CudaResult (*allocate)(CudaAddress* address, size_t bytes);
  CudaResult (*free)(CudaAddress address);
  void (*misuse)(const char* fake, const char* format, ...);
};

inline constexpr const char* kInternalsName = "fake_cuda_internals";

}  // namespace fake_gpu

extern "C" const fake_gpu::CudaInternals* fake_cuda_internals();
