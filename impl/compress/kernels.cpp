// All kernels in one translation unit. The compiler then reads Highway once per instruction set, instead of
// once per instruction set and file.
#define HWY_TARGET_INCLUDE "compress/kernels.cpp"
#include "hwy/foreach_target.h"
// These files must be included after foreach_target.h.
#include "compress/blocks.cpp"
#include "compress/error_feedback.cpp"
#include "compress/onebit.cpp"
#include "compress/orthogonalise.cpp"
#include "compress/powersgd.cpp"
#include "compress/scaled_fp8.cpp"
#include "compress/topk.cpp"
