/* Functions of the fake CUDA driver that the real driver does not have.
 *
 * Its environment: FAKE_CUDA_DEVICES (default 2) is the number of cards, from which CUDA_VISIBLE_DEVICES
 * selects. FAKE_CUDA_VERSION (default 13000). FAKE_CUDA_INIT is the result of cuInit. FAKE_CUDA_INIT_HANG_MS.
 * FAKE_CUDA_MEMORY_MIB is the memory of each device. FAKE_CUDA_STICKY_AT=k: the k-th launch or copy fails on
 * its stream with 700, and so does every later call. The fake NCCL has FAKE_NCCL_VERSION (default 22809),
 * FAKE_NCCL_FAULT and FAKE_NCCL_SLOW_MS, see nccl_fault.cpp, and NCCL_HOSTID, which distinguishes ranks that
 * share a card. */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a whole launch on the CPU. `params` are the parameters of cuLaunchKernel, copied at the launch. */
typedef void (*fake_cuda_kernel)(void** params, const unsigned grid[3], const unsigned block[3]);

/* Registers what cuModuleGetFunction finds by this name, in any module. */
void fake_cuda_register_kernel(const char* name, fake_cuda_kernel run, size_t n_params,
                               const size_t* param_bytes);

/* Returns how many wrong uses of both fakes were found in this process so far. */
int fake_gpu_misuses(void);

#ifdef __cplusplus
}
#endif

#endif
