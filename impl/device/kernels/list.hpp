// Lists all kernels as X-macros, from which they are defined and looked up. Arguments in lower case are names
// of dtypes; the others are types of scalar.hpp.
#pragma once

// DSC_KERNEL_MOVES calls do_(from, From, to, To) for each pair of types that has the kernels
// dsc_move_<from>_<to> and dsc_move_norm_<from>_<to>; the latter adds the norm of its input.
#define DSC_KERNEL_MOVES(do_)                                                                           \
  do_(f64, F64, f64, F64) do_(f32, F32, f32, F32) do_(f16, F16, f16, F16) do_(bf16, Bf16, bf16, Bf16)   \
      do_(f8e4m3, F8e4m3, f8e4m3, F8e4m3) do_(f8e5m2, F8e5m2, f8e5m2, F8e5m2) do_(f32, F32, f16, F16)   \
          do_(f16, F16, f32, F32) do_(f32, F32, bf16, Bf16) do_(bf16, Bf16, f32, F32)                   \
              do_(f32, F32, f8e4m3, F8e4m3) do_(f8e4m3, F8e4m3, f32, F32) do_(f32, F32, f8e5m2, F8e5m2) \
                  do_(f8e5m2, F8e5m2, f32, F32)

// DSC_KERNEL_REDUCES calls do_(dtype, Scalar) for each type that has the kernel dsc_reduce_<dtype>.
#define DSC_KERNEL_REDUCES(do_) \
  do_(f64, F64) do_(f32, F32) do_(f16, F16) do_(bf16, Bf16) do_(f8e4m3, F8e4m3) do_(f8e5m2, F8e5m2)

// DSC_KERNEL_ROWS calls do_(dtype, Scalar) for each type that has the kernels dsc_sum_rows_<dtype>,
// dsc_multiply_rows_<dtype> and dsc_add_products_<dtype>.
#define DSC_KERNEL_ROWS(do_) do_(f64, F64) do_(f32, F32) do_(f16, F16) do_(bf16, Bf16)

// The kernels dsc_copy, dsc_copy_strided and dsc_gather_rows have no types and are not listed.
