/* The device of a test's rank, through CUDA's driver or the fake driver, found as the library finds it. With
 * DSC_TEST_DEVICE=1 the ranks of ranks.h are bound to devices, and the plain buffers of traffic.h are in
 * device memory. */
#ifndef TESTS_SUPPORT_GPU_H
#define TESTS_SUPPORT_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool gpu_wanted(void);

/* Returns true if the driver is not the fake one. The results of a real NCCL are only correct within bounds,
 * and it needs aligned memory.
 */
bool gpu_is_real(void);

/* Returns how many wrong uses the fake driver and the fake NCCL have found in this process; 0 on a real
 * device. */
int gpu_misuses(void);

/* Returns the number of devices, which a child process counts. After a process has used CUDA, its children
 * cannot use it. */
int gpu_count_apart(void);

/* Returns the number of devices, or 0 and a reason in `why` if there is no driver. */
int gpu_count(const char** why);

/* Makes the calling thread use a device. Returns false if a call failed; gpu_trouble() says which. */
bool gpu_bind(int device);
const char* gpu_trouble(void);

void* gpu_alloc(size_t bytes); /* zeroed memory; NULL after an error, see gpu_trouble() */
void gpu_free(void* memory);
bool gpu_upload(void* to, const void* from, size_t bytes);
bool gpu_download(void* to, const void* from, size_t bytes);

/* Starts a copy between two addresses of the device on a stream. */
bool gpu_copy(void* to, const void* from, size_t bytes, void* stream);

/* Waits until all work on the stream has ended. NULL is the default stream. */
bool gpu_synchronize(void* stream);

/* Returns a new stream, or NULL after an error, see gpu_trouble(). */
void* gpu_stream(void);
void gpu_stream_free(void* stream);

/* Records the work on the stream until gpu_end_capture(). gpu_run_graph() runs it. After an error they return
 * false or NULL, see gpu_trouble(). */
bool gpu_begin_capture(void* stream);
void* gpu_end_capture(void* stream);
bool gpu_run_graph(void* graph, void* stream);
void gpu_graph_free(void* graph);

#endif /* TESTS_SUPPORT_GPU_H */
