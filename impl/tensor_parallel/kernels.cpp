// Compiles all kernels as one translation unit. The compiler then reads Highway once per instruction set,
// instead of once per instruction set and file.
#define HWY_TARGET_INCLUDE "tensor_parallel/kernels.cpp"
#include "hwy/foreach_target.h"
// Highway requires this include after foreach_target.h.
#include "tensor_parallel/cross_entropy_rows.cpp"
#include "tensor_parallel/rms_norm_rows.cpp"
