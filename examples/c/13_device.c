/*
 * Memory of a GPU, and a stream. With four ranks each of them prints
 *   rank 0: every element is 10, on device 0
 * or, if there is no GPU for every rank, "in host memory" after a line with the reason.
 *
 *   dscrun -n 4 -- ./13_device
 */
#include <string.h>

#include "check.h"
#include "device.h"

enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };

/* Uses NCCL for memory of GPUs if possible, otherwise only the host engine. An error on one rank is an
 * error on all ranks. */
static dsc_comm_t* start(void) {
  dsc_comm_t* world = NULL;
  dsc_init_options_t options;
  CHECK(dsc_init_options_init(&options, sizeof options));
  options.backend = DSC_BACKEND_DEVICE;
  const dsc_result_t result = dsc_init_distributed(&options, &world);
  if (result == DSC_OK) return world;
  char reason[1024];
  snprintf(reason, sizeof reason, "%s", dsc_last_error_message());
  if (result != DSC_ERR_NO_BACKEND && result != DSC_ERR_CONFIG) CHECK(result);
  options.backend = DSC_BACKEND_HOST;
  CHECK(dsc_init_distributed(&options, &world));
  int32_t rank = -1;
  CHECK(dsc_comm_rank(world, &rank));
  if (rank == 0) printf("falls back to host memory: %s\n", reason);
  return world;
}

/* Only the last line waits: the stream runs copy, sum and copy one after another. */
static void sum_on_device(dsc_comm_t* world, int32_t device, float* values) {
  const cuda_t cuda = cuda_load();
  cuda_use(&cuda, device); /* libdsc does not make a device current for the program */
  void* stream = NULL;
  CHECK_CUDA(cuda.stream_create(&stream, 1, 0)); /* 1: not ordered after the default stream */

  void* memory = NULL;
  CHECK(dsc_mem_alloc(world, BYTES, DSC_MEMORY_KIND_DEVICE, &memory));
  cuda_copy(&cuda, memory, values, BYTES, stream);
  dsc_work_t* work = NULL;
  CHECK(dsc_all_reduce(world, memory, memory, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, stream, &work));
  CHECK(dsc_work_wait(work, 0, stream)); /* the stream waits, the program does not */
  cuda_copy(&cuda, values, memory, BYTES, stream);
  CHECK_CUDA(cuda.stream_synchronize(stream));

  CHECK(dsc_work_destroy(work));
  CHECK(dsc_mem_free(memory));
  CHECK_CUDA(cuda.stream_destroy(stream));
}

int main(void) {
  dsc_comm_t* const world = start();
  int32_t rank = -1, device = -1;
  CHECK(dsc_comm_rank(world, &rank));
  CHECK(dsc_comm_device(world, &device));

  float values[COUNT];
  for (int i = 0; i < COUNT; ++i) values[i] = (float)rank + 1;
  if (device >= 0)
    sum_on_device(world, device, values);
  else
    CHECK(dsc_all_reduce(world, values, values, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));

  for (int i = 1; i < COUNT; ++i) EXPECT(memcmp(&values[i], &values[0], sizeof values[0]) == 0);
  if (device >= 0)
    printf("rank %d: every element is %g, on device %d\n", rank, (double)values[0], device);
  else
    printf("rank %d: every element is %g, in host memory\n", rank, (double)values[0]);
  CHECK(dsc_finalize());
  return EXIT_SUCCESS;
}
