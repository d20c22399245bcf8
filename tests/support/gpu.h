/* The device of a test's rank, by CUDA's driver, or the fake one, found as the library finds it. With
 * DSC_TEST_DEVICE=1 ranks of ranks.h are bound to devices, and plain buffers of traffic.h lie there. */
#ifndef TESTS_SUPPORT_GPU_H
#define TESTS_SUPPORT_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool gpu_wanted(void);

/* Not the fake driver. What NCCL gives then is right within bounds, not to the bit, and wants aligned memory.
 */
bool gpu_is_real(void);

/* What this process has used wrongly so far, as the fake driver and NCCL saw it; 0 on a real device. */
int gpu_misuses(void);

/* Number of devices, asked for by a child: a process that has touched CUDA can have none that use it. */
int gpu_count_apart(void);

/* Number of devices; 0 with a reason in `why` when there is no driver. */
int gpu_count(const char** why);

/* The calling thread works on a device from now on. False: a call failed; gpu_trouble() says which. */
bool gpu_bind(int device);
const char* gpu_trouble(void);

void* gpu_alloc(size_t bytes); /* zeroed; NULL: see gpu_trouble() */
void gpu_free(void* memory);
bool gpu_upload(void* to, const void* from, size_t bytes);
bool gpu_download(void* to, const void* from, size_t bytes);

/* On a stream, between places of the device; only put there. */
bool gpu_copy(void* to, const void* from, size_t bytes, void* stream);

/* What was put on the default stream, or on another one, is over. */
bool gpu_synchronize(void* stream);

/* A stream of its own; NULL: see gpu_trouble(). */
void* gpu_stream(void);
void gpu_stream_free(void* stream);

/* What comes on the stream until the end is recorded, and run by gpu_run_graph(). NULL, false: see above. */
bool gpu_begin_capture(void* stream);
void* gpu_end_capture(void* stream);
bool gpu_run_graph(void* graph, void* stream);
void gpu_graph_free(void* graph);

#endif /* TESTS_SUPPORT_GPU_H */
