/* What the fake CUDA driver offers besides the real one's functions. */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a whole launch on the CPU; params are as at cuLaunchKernel, copied then. */
typedef void (*fake_cuda_kernel)(void** params, const unsigned grid[3], const unsigned block[3]);

/* What cuModuleGetFunction finds by this name, in any module. */
void fake_cuda_register_kernel(const char* name, fake_cuda_kernel run, size_t n_params,
                               const size_t* param_bytes);

/* What was used wrongly so far in this process, of both fakes. */
int fake_gpu_misuses(void);

#ifdef __cplusplus
}
#endif

#endif
