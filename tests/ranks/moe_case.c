#include "moe_case.h"

#include <stdlib.h>
#include <string.h>

#include "reference.h"

void moe_set(dsc_dtype_t dtype, void* elements, size_t i, double value) {
  const float narrow = (float)value;
  uint32_t bits = 0;
  memcpy(&bits, &narrow, sizeof bits);
  if (dtype == DSC_DTYPE_F64)
    ((double*)elements)[i] = value;
  else if (dtype == DSC_DTYPE_F32)
    ((float*)elements)[i] = narrow;
  else
    ((uint16_t*)elements)[i] = (uint16_t)(bits >> 16);
}

void moe_set_weight(dsc_dtype_t dtype, void* weights, size_t i, double value) {
  moe_set(dtype == DSC_DTYPE_F64 ? DSC_DTYPE_F64 : DSC_DTYPE_F32, weights, i, value);
}

double moe_weight(dsc_dtype_t dtype, const void* weights, size_t i) {
  return dtype == DSC_DTYPE_F64 ? ((const double*)weights)[i] : (double)((const float*)weights)[i];
}

size_t moe_weight_bytes(dsc_dtype_t dtype) { return dtype == DSC_DTYPE_F64 ? 8 : 4; }

/* Returns how many slots of the same expert are before this one, in the order of weights or of slot numbers.
 */
static size_t slots_before(const moe_sizes_t* sizes, const moe_tokens_t* it, size_t slot) {
  size_t before = 0;
  for (size_t other = 0; other < it->count * sizes->top_k; ++other) {
    if (it->experts[other] != it->experts[slot]) continue;
    const double more = it->weights[other] - it->weights[slot];
    const bool ahead = sizes->drop == DSC_MOE_DROP_LIGHTEST && more != 0 ? more > 0 : other < slot;
    before += ahead;
  }
  return before;
}

void moe_tokens_open(moe_tokens_t* it, const moe_sizes_t* sizes, int32_t rank, uint64_t seed) {
  memset(it, 0, sizeof *it);
  uint64_t random = seed * 64 + (uint64_t)rank;
  it->count = sizes->ranks > 2 && rank == 1 ? 0 : next_random(&random) % MOST_TOKENS + 1;
  it->values = calloc(it->count * sizes->hidden + 1, sizeof(double));
  for (size_t i = 0; i < it->count * sizes->hidden; ++i)
    moe_set(sizes->dtype, it->values, i, (double)(next_random(&random) % 129) / 32 - 2);
  for (size_t slot = 0; slot < it->count * sizes->top_k; ++slot) {
    /* about one slot of eight has no expert, and the first expert is chosen more often */
    const uint64_t drawn = next_random(&random) % (sizes->experts + 2 + (sizes->experts + 2) / 7);
    it->experts[slot] = drawn < sizes->experts ? (int32_t)drawn : drawn < sizes->experts + 2 ? 0 : -1;
    it->weights[slot] = (double)(next_random(&random) % 16 + 1) / 16;
  }
  for (size_t slot = 0; slot < it->count * sizes->top_k; ++slot)
    it->kept[slot] =
        it->experts[slot] >= 0 && (sizes->capacity == 0 || slots_before(sizes, it, slot) < sizes->capacity);
}

void moe_tokens_close(moe_tokens_t* it) { free(it->values); }

double moe_expert(size_t expert, double x) { return (1 + (double)(expert % 8) / 4) * x + x * x / 8; }

double moe_slope(size_t expert, double x) { return 1 + (double)(expert % 8) / 4 + x / 4; }

dsc_result_t moe_plan(dsc_comm_t* comm, const moe_sizes_t* sizes, const moe_tokens_t* tokens,
                      dsc_moe_plan_t** plan) {
  dsc_moe_plan_options_t options;
  float weights[MOST_SLOTS];
  for (size_t slot = 0; slot < MOST_SLOTS; ++slot) weights[slot] = (float)tokens->weights[slot];
  const dsc_result_t result = dsc_moe_plan_options_init(&options, sizeof options);
  if (result != DSC_OK) return result;
  options.experts = sizes->experts;
  options.top_k = sizes->top_k;
  options.capacity = sizes->capacity;
  options.drop = sizes->drop;
  options.padded = sizes->padded;
  return dsc_moe_plan_create(comm, &options, tokens->experts, tokens->count, weights, plan);
}

int32_t moe_holder(const moe_sizes_t* sizes, size_t expert) {
  for (int32_t rank = 0; rank < sizes->ranks; ++rank) {
    size_t begin = 0, length = 0;
    if (dsc_tensor_map_part(sizes->experts, (size_t)sizes->ranks, (size_t)rank, &begin, &length) != DSC_OK)
      return -1;
    if (expert - begin < length) return rank;
  }
  return -1;
}
