// The C part of bench_python_call.py: the same call in a loop in C, on the same communicator and buffer.
#include <dsc/dsc.h>

#include <ctime>

extern "C" __attribute__((visibility("default"))) double bench_call_ns(float* buffer, int repetitions);

// Returns nanoseconds per all-reduce of one f32 in the process's world; a negative number if a call failed.
double bench_call_ns(float* buffer, int repetitions) {
  dsc_comm_t* comm = nullptr;
  if (dsc_world(&comm) != DSC_OK) return -1;
  timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int i = 0; i < repetitions; ++i)
    if (dsc_all_reduce(comm, buffer, buffer, 1, DSC_DTYPE_F32, DSC_OP_SUM, nullptr, nullptr) != DSC_OK)
      return -1;
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double elapsed_ns =
      static_cast<double>(end.tv_sec - start.tv_sec) * 1e9 + static_cast<double>(end.tv_nsec - start.tv_nsec);
  return elapsed_ns / repetitions;
}
