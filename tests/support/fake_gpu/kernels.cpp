// The library's kernels for a fake driver: runs their bodies on the CPU, one thread after another.
#include <cstddef>
#include <cstring>
#include <vector>

#include "device/kernels/list.hpp"
#include "device/kernels/move.hpp"
#include "device/kernels/reduce.hpp"
#include "device/kernels/rows.hpp"
#include "device/kernels/strided.hpp"
#include "fake_gpu.h"

namespace {

using namespace dsc::kernels;

template <class Args>
Args first(void** params) {
  Args args;
  std::memcpy(&args, params[0], sizeof args);
  return args;
}

template <class Body>
void each_thread(const unsigned grid[3], const unsigned block[3], Body body) {
  for (unsigned b = 0; b < grid[0]; ++b)
    for (unsigned t = 0; t < block[0]; ++t) body(GridIndex{b, grid[0]}, GridIndex{t, block[0]});
}

void fold(std::vector<Norm>& sums) {
  const auto threads = static_cast<unsigned>(sums.size());
  for (unsigned step = threads / 2; step > 0; step /= 2)
    for (unsigned t = 0; t < threads; ++t) halve(sums.data(), step, t);
}

template <class From, class To>
void run_move(void** params, const unsigned grid[3], const unsigned block[3]) {
  const auto args = first<MoveArgs>(params);
  each_thread(grid, block, [&](GridIndex b, GridIndex t) { move<From, To, NoWatch>(args, b, t); });
}

template <class From, class To>
void run_move_norm(void** params, const unsigned grid[3], const unsigned block[3]) {
  const auto args = first<MoveArgs>(params);
  std::vector<Norm> sums(block[0]);
  each_thread(grid, block, [&](GridIndex b, GridIndex t) {
    sums[t.index] = move<From, To, NormWatch>(args, b, t).seen;
    if (t.index + 1 < t.count) return;
    fold(sums);
    args.norm->of_block[b.index] = sums[0];
    if (++args.norm->blocks_done != b.count) return;
    for (unsigned i = 0; i < t.count; ++i) sums[i] = sum_blocks(*args.norm, b.count, GridIndex{i, t.count});
    fold(sums);
    finish(*args.norm, sums[0]);
  });
}

template <class T>
void run_reduce(void** params, const unsigned grid[3], const unsigned block[3]) {
  const auto args = first<ReduceArgs>(params);
  each_thread(grid, block, [&](GridIndex b, GridIndex t) { reduce<T>(args, b, t); });
}

void run_copy(void** params, const unsigned grid[3], const unsigned block[3]) {
  const auto args = first<MoveArgs>(params);
  each_thread(grid, block, [&](GridIndex b, GridIndex t) { copy(args, b, t); });
}

void run_copy_strided(void** params, const unsigned grid[3], const unsigned block[3]) {
  const auto args = first<StridedArgs>(params);
  each_thread(grid, block, [&](GridIndex b, GridIndex t) { copy_strided(args, b, t); });
}

void run_gather_rows(void** params, const unsigned grid[3], const unsigned block[3]) {
  const auto args = first<RowGatherArgs>(params);
  each_thread(grid, block, [&](GridIndex b, GridIndex t) { gather_rows(args, b, t); });
}

template <class T>
void run_sum_rows(void** params, const unsigned grid[3], const unsigned block[3]) {
  const auto args = first<RowSumArgs>(params);
  each_thread(grid, block, [&](GridIndex b, GridIndex t) { sum_rows<T>(args, b, t); });
}

template <class T>
void run_multiply_rows(void** params, const unsigned grid[3], const unsigned block[3]) {
  const auto args = first<RowProductArgs>(params);
  each_thread(grid, block, [&](GridIndex b, GridIndex t) { multiply_rows<T>(args, b, t); });
}

template <class T>
void run_add_products(void** params, const unsigned grid[3], const unsigned block[3]) {
  const auto args = first<RowProductArgs>(params);
  each_thread(grid, block, [&](GridIndex b, GridIndex t) { add_products<T>(args, b, t); });
}

struct Registered {
  Registered() {
    constexpr size_t kMove = sizeof(MoveArgs), kStrided = sizeof(StridedArgs), kReduce = sizeof(ReduceArgs);
#define DSC_MOVE(from, From, to, To)                                                   \
  fake_cuda_register_kernel("dsc_move_" #from "_" #to, run_move<From, To>, 1, &kMove); \
  fake_cuda_register_kernel("dsc_move_norm_" #from "_" #to, run_move_norm<From, To>, 1, &kMove);
    DSC_KERNEL_MOVES(DSC_MOVE)
#define DSC_REDUCE(dtype, Scalar) \
  fake_cuda_register_kernel("dsc_reduce_" #dtype, run_reduce<Scalar>, 1, &kReduce);
    DSC_KERNEL_REDUCES(DSC_REDUCE)
    constexpr size_t kGather = sizeof(RowGatherArgs), kSum = sizeof(RowSumArgs);
    constexpr size_t kProduct = sizeof(RowProductArgs);
#define DSC_ROWS(dtype, Scalar)                                                                    \
  fake_cuda_register_kernel("dsc_sum_rows_" #dtype, run_sum_rows<Scalar>, 1, &kSum);               \
  fake_cuda_register_kernel("dsc_multiply_rows_" #dtype, run_multiply_rows<Scalar>, 1, &kProduct); \
  fake_cuda_register_kernel("dsc_add_products_" #dtype, run_add_products<Scalar>, 1, &kProduct);
    DSC_KERNEL_ROWS(DSC_ROWS)
    fake_cuda_register_kernel("dsc_gather_rows", run_gather_rows, 1, &kGather);
    fake_cuda_register_kernel("dsc_copy", run_copy, 1, &kMove);
    fake_cuda_register_kernel("dsc_copy_strided", run_copy_strided, 1, &kStrided);
  }
} const registered;

}  // namespace
