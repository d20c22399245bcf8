// Which kernels there are. Names in lower case are those of dtypes, the others of scalars.
#pragma once

// do_(from, From, to, To): dsc_move_<from>_<to>, and dsc_move_norm_<from>_<to> with the norm of what it
// reads.
#define DSC_KERNEL_MOVES(do_)                                                                           \
  do_(f64, F64, f64, F64) do_(f32, F32, f32, F32) do_(f16, F16, f16, F16) do_(bf16, Bf16, bf16, Bf16)   \
      do_(f8e4m3, F8e4m3, f8e4m3, F8e4m3) do_(f8e5m2, F8e5m2, f8e5m2, F8e5m2) do_(f32, F32, f16, F16)   \
          do_(f16, F16, f32, F32) do_(f32, F32, bf16, Bf16) do_(bf16, Bf16, f32, F32)                   \
              do_(f32, F32, f8e4m3, F8e4m3) do_(f8e4m3, F8e4m3, f32, F32) do_(f32, F32, f8e5m2, F8e5m2) \
                  do_(f8e5m2, F8e5m2, f32, F32)

// do_(dtype, Scalar): dsc_reduce_<dtype>.
#define DSC_KERNEL_REDUCES(do_) \
  do_(f64, F64) do_(f32, F32) do_(f16, F16) do_(bf16, Bf16) do_(f8e4m3, F8e4m3) do_(f8e5m2, F8e5m2)

// Besides: dsc_copy, dsc_copy_strided.
