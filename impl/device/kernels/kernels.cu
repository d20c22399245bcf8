// Entry points of the kernels: thin wrappers that pass thread and block indices to the portable bodies in
// the headers below.
#include "device/kernels/list.hpp"
#include "device/kernels/move.hpp"
#include "device/kernels/norm.hpp"
#include "device/kernels/reduce.hpp"
#include "device/kernels/rows.hpp"
#include "device/kernels/strided.hpp"

using namespace dsc::kernels;

namespace {

__device__ GridIndex this_block() { return {blockIdx.x, gridDim.x}; }
__device__ GridIndex this_thread() { return {threadIdx.x, blockDim.x}; }

__device__ void fold(Norm* sums) {
  for (unsigned step = blockDim.x / 2; step > 0; step /= 2) {
    __syncthreads();
    halve(sums, step, threadIdx.x);
  }
}

__device__ bool is_last_block(NormState& state) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    __threadfence();  // orders the write of this block's sum before the increment of blocks_done
    last = atomicAdd(&state.blocks_done, 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

__device__ void add_up(NormState& state, const Norm& of_thread) {
  __shared__ Norm sums[kThreads];
  sums[threadIdx.x] = of_thread;
  fold(sums);
  if (threadIdx.x == 0) state.of_block[blockIdx.x] = sums[0];
  if (!is_last_block(state)) return;
  sums[threadIdx.x] = sum_blocks(state, gridDim.x, this_thread());
  fold(sums);
  if (threadIdx.x == 0) finish(state, sums[0]);
}

}  // namespace

static_assert(sizeof(MoveArgs) <= 32764 && sizeof(StridedArgs) <= 32764 && sizeof(ReduceArgs) <= 32764);

// At most 256 threads per block and at least four resident blocks per multiprocessor. The size of the grid is
// computed for this occupancy.
#define DSC_KERNEL extern "C" __global__ void __launch_bounds__(kThreads, 4)

#define DSC_MOVE(from, From, to, To)                                                      \
  DSC_KERNEL dsc_move_##from##_##to(const __grid_constant__ MoveArgs args) {              \
    move<From, To, NoWatch>(args, this_block(), this_thread());                           \
  }                                                                                       \
  DSC_KERNEL dsc_move_norm_##from##_##to(const __grid_constant__ MoveArgs args) {         \
    const NormWatch watch = move<From, To, NormWatch>(args, this_block(), this_thread()); \
    add_up(*args.norm, watch.seen);                                                       \
  }
DSC_KERNEL_MOVES(DSC_MOVE)

#define DSC_REDUCE(dtype, Scalar)                                          \
  DSC_KERNEL dsc_reduce_##dtype(const __grid_constant__ ReduceArgs args) { \
    reduce<Scalar>(args, this_block(), this_thread());                     \
  }
DSC_KERNEL_REDUCES(DSC_REDUCE)

#define DSC_ROWS(dtype, Scalar)                                                       \
  DSC_KERNEL dsc_sum_rows_##dtype(const __grid_constant__ RowSumArgs args) {          \
    sum_rows<Scalar>(args, this_block(), this_thread());                              \
  }                                                                                   \
  DSC_KERNEL dsc_multiply_rows_##dtype(const __grid_constant__ RowProductArgs args) { \
    multiply_rows<Scalar>(args, this_block(), this_thread());                         \
  }                                                                                   \
  DSC_KERNEL dsc_add_products_##dtype(const __grid_constant__ RowProductArgs args) {  \
    add_products<Scalar>(args, this_block(), this_thread());                          \
  }
DSC_KERNEL_ROWS(DSC_ROWS)

DSC_KERNEL dsc_copy(const __grid_constant__ MoveArgs args) { copy(args, this_block(), this_thread()); }

DSC_KERNEL dsc_copy_strided(const __grid_constant__ StridedArgs args) {
  copy_strided(args, this_block(), this_thread());
}

DSC_KERNEL dsc_gather_rows(const __grid_constant__ RowGatherArgs args) {
  gather_rows(args, this_block(), this_thread());
}
