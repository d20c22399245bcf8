/* The C half of bench_julia_marks.jl: marks every gradient of a reducer, from the last one to the first. */
#include <dsc/dsc.h>

dsc_result_t mark_all(dsc_bucket_reducer_t* reducer, void* const* gradients, size_t n);

dsc_result_t mark_all(dsc_bucket_reducer_t* reducer, void* const* gradients, size_t n) {
  for (size_t i = n; i-- > 0;) {
    const dsc_result_t result = dsc_bucket_reducer_mark_ready(reducer, i, gradients[i], NULL);
    if (result < 0) return result;
  }
  return DSC_OK;
}
