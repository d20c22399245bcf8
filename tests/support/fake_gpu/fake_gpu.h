/* What the fake CUDA driver offers besides the real one's functions.
 *
 * Its environment: FAKE_CUDA_DEVICES (2), how many cards there are, of which CUDA_VISIBLE_DEVICES chooses;
 * FAKE_CUDA_VERSION (13000), FAKE_CUDA_INIT, the result of cuInit, FAKE_CUDA_INIT_HANG_MS,
 * FAKE_CUDA_MEMORY_MIB of each device, FAKE_CUDA_STICKY_AT=k: the k-th launch or copy fails on its stream
 * with 700, and every call thereafter. The fake NCCL's: FAKE_NCCL_VERSION (22809), FAKE_NCCL_FAULT and
 * FAKE_NCCL_SLOW_MS, see nccl_fault.cpp, NCCL_HOSTID, by which ranks on one card are told apart. */
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
