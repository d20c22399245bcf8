// The functions of the fake driver that the fake NCCL needs. The fake NCCL finds this table by name, so that
// the two libraries need not be linked with each other.
#pragma once

#include "cuda_state.hpp"

namespace fake_gpu {

struct CudaInternals {
  CudaResult (*usable)();   // the error that any call would return
  int (*current_device)();  // -1 if there is none
  int (*card)(int device);  // the machine's number of the card
  bool (*holds)(int device, const void* memory,
                size_t bytes);  // fails unless it is one allocation; managed memory is on every device
  bool (*is_stream)(int device, CudaStream* stream);
  // Enqueues to all streams together. The first stream executes the action, after the earlier work of all
  // streams and before the later work of all streams.
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
