// All kernels in one translation unit: the compiler reads Highway once per instruction set, and not once per
// file as well.
#define HWY_TARGET_INCLUDE "tensor_parallel/kernels.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "tensor_parallel/cross_entropy_rows.cpp"
#include "tensor_parallel/rms_norm_rows.cpp"
