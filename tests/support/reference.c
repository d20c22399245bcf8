#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

size_t element_bytes(dsc_dtype_t dtype) {
  switch (dtype) {
    case DSC_DTYPE_F16:
    case DSC_DTYPE_BF16:
      return 2;
    case DSC_DTYPE_I32:
    case DSC_DTYPE_U32:
    case DSC_DTYPE_F32:
      return 4;
    case DSC_DTYPE_I64:
    case DSC_DTYPE_U64:
    case DSC_DTYPE_F64:
      return 8;
    default:
      return 1;
  }
}

static int is_real(dsc_dtype_t dtype) { return dtype >= DSC_DTYPE_F16 && dtype <= DSC_DTYPE_F8E5M2; }

int op_is_offered(dsc_op_t op, dsc_dtype_t dtype) {
  if (op == DSC_OP_AVG) return is_real(dtype);
  return op < DSC_OP_BAND || !is_real(dtype);
}

static uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float bf16_to_float(uint16_t half) { return float_of((uint32_t)half << 16); }

/* First cuts towards zero. Then rounds up if the cut part is more than half a unit, or is half a unit and the
 * code is odd. */
static uint16_t float_to_bf16(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t below = bits & 0xffff0000u;
  const uint32_t rest = bits & 0xffffu;
  const int up = rest > 0x8000u || (rest == 0x8000u && (below & 0x10000u) != 0);
  return (uint16_t)((below + (up ? 0x10000u : 0)) >> 16);
}

static float f16_to_float(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  float value;
  if (exponent == 31)
    value = fraction != 0 ? NAN : INFINITY;
  else if (exponent == 0)
    value = ldexpf((float)fraction, -24);
  else
    value = ldexpf((float)(1024 + fraction), exponent - 25);
  return half >> 15 ? -value : value;
}

/* The distance between neighbors at the value's magnitude is 2^step. nearbyint rounds to nearest even. */
static uint16_t float_to_f16(float value) {
  const uint16_t sign = (uint16_t)(float_bits(value) >> 31 << 15);
  const float magnitude = fabsf(value);
  if (magnitude == 0) return sign;
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  int exponent = 0;
  frexpf(magnitude, &exponent); /* magnitude = f x 2^exponent, f in [0.5, 1) */
  const int step = exponent - 11 < -24 ? -24 : exponent - 11;
  const unsigned units = (unsigned)nearbyintf(ldexpf(magnitude, -step));
  /* Below 2^-14 the number of units of 2^-24 is the code itself. Above, the exponent counts the doublings. */
  if (step == -24) return (uint16_t)(sign | units);
  return (uint16_t)(sign | (((unsigned)(step + 24) << 10) + units));
}

/* Returns how many bits of the fraction an 8-bit float stores, and the exponent of its smallest unit. */
static int f8_stored(dsc_dtype_t dtype) { return dtype == DSC_DTYPE_F8E4M3 ? 3 : 2; }
static int f8_unit(dsc_dtype_t dtype) { return dtype == DSC_DTYPE_F8E4M3 ? -9 : -16; }

/* Only for numbers, not for infinity or NaN. */
static float f8_to_float(uint8_t code, dsc_dtype_t dtype) {
  const int stored = f8_stored(dtype), one = 1 << stored;
  const int exponent = (code & 127) >> stored, fraction = code & (one - 1);
  const float value = exponent == 0 ? ldexpf((float)fraction, f8_unit(dtype))
                                    : ldexpf((float)(one + fraction), exponent - 1 + f8_unit(dtype));
  return code >> 7 ? -value : value;
}

/* Like float_to_f16(). Beyond the largest number follows infinity, or in E4M3 NaN, which has no sign. */
static uint8_t float_to_f8(float value, dsc_dtype_t dtype) {
  const int stored = f8_stored(dtype), unit = f8_unit(dtype);
  const unsigned beyond = dtype == DSC_DTYPE_F8E4M3 ? 0x7f : 0x7c;
  int exponent = unit; /* the exponent of zero */
  if (value != 0) frexpf(value, &exponent);
  const int step = exponent - 1 - stored < unit ? unit : exponent - 1 - stored;
  const unsigned units = (unsigned)nearbyintf(ldexpf(fabsf(value), -step));
  unsigned code = ((unsigned)(step - unit) << stored) + units;
  if (code > beyond) code = beyond;
  return (uint8_t)(code == 0x7f ? code : code | float_bits(value) >> 31 << 7);
}

static float load_float(const void* elements, size_t i, dsc_dtype_t dtype) {
  uint16_t half;
  float value;
  if (dtype > DSC_DTYPE_BF16) return f8_to_float(((const uint8_t*)elements)[i], dtype);
  if (dtype == DSC_DTYPE_F32) {
    memcpy(&value, (const char*)elements + 4 * i, 4);
    return value;
  }
  memcpy(&half, (const char*)elements + 2 * i, 2);
  return dtype == DSC_DTYPE_F16 ? f16_to_float(half) : bf16_to_float(half);
}

static void store_float(void* elements, size_t i, dsc_dtype_t dtype, float value) {
  if (dtype > DSC_DTYPE_BF16) {
    ((uint8_t*)elements)[i] = float_to_f8(value, dtype);
    return;
  }
  if (dtype == DSC_DTYPE_F32) {
    memcpy((char*)elements + 4 * i, &value, 4);
    return;
  }
  const uint16_t half = dtype == DSC_DTYPE_F16 ? float_to_f16(value) : float_to_bf16(value);
  memcpy((char*)elements + 2 * i, &half, 2);
}

static double load_double(const void* elements, size_t i) {
  double value;
  memcpy(&value, (const char*)elements + 8 * i, 8);
  return value;
}

double load_real(const void* elements, size_t i, dsc_dtype_t dtype) {
  if (dtype == DSC_DTYPE_F64) return load_double(elements, i);
  if (dtype > DSC_DTYPE_BF16) {
    const unsigned code = ((const uint8_t*)elements)[i] & 127;
    if (code == 127 || (dtype == DSC_DTYPE_F8E5M2 && code > 123)) return NAN;
  }
  return (double)load_float(elements, i, dtype);
}

static uint64_t load_integer(const void* elements, size_t i, size_t bytes, int is_signed) {
  uint64_t value = 0;
  memcpy(&value, (const char*)elements + bytes * i, bytes); /* works because the machine is little-endian */
  if (is_signed && bytes < 8 && value >> (8 * bytes - 1) != 0) value |= ~(uint64_t)0 << (8 * bytes);
  return value;
}

/* Both signs, magnitudes within [1/4, 4): sums and products need rounding, and f32 never overflows. */
static double real_value(uint64_t random) {
  const uint64_t bits = (random & 4) << 61 | (1021 + (random & 3)) << 52 | random >> 12;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Elements repeat after a prime number of elements, so that a misplaced block always looks wrong. */
enum { PERIOD = 4099 };

typedef unsigned char period_t[PERIOD * 8];

static void make_period(period_t elements, dsc_dtype_t dtype, uint64_t seed) {
  const size_t bytes = element_bytes(dtype);
  uint64_t state = seed * 0x2545f4914f6cdd1du + (uint64_t)dtype;
  for (size_t i = 0; i < PERIOD; ++i) {
    const uint64_t random = next_random(&state);
    if (dtype == DSC_DTYPE_F64) {
      const double value = real_value(random);
      memcpy(elements + 8 * i, &value, 8);
    } else if (is_real(dtype)) {
      store_float(elements, i, dtype, (float)real_value(random));
    } else {
      const uint64_t value = dtype == DSC_DTYPE_BOOL ? random & 1 : random;
      memcpy(elements + bytes * i, &value, bytes);
    }
  }
}

/* Writes elements first to first + count - 1 of the endless repetition. */
static void repeat(void* target, const period_t period, size_t first, size_t count, size_t bytes) {
  char* at = target;
  for (size_t phase = first % PERIOD; count > 0; phase = 0) {
    const size_t part = count < PERIOD - phase ? count : PERIOD - phase;
    memcpy(at, period + phase * bytes, part * bytes);
    at += part * bytes;
    count -= part;
  }
}

void fill_elements(void* elements, size_t first, size_t count, dsc_dtype_t dtype, uint64_t seed) {
  period_t period;
  make_period(period, dtype, seed);
  repeat(elements, period, first, count, element_bytes(dtype));
}

static float combine_float(float a, float b, dsc_op_t op) {
  if (op == DSC_OP_PROD) return a * b;
  if (op == DSC_OP_MAX) return a > b ? a : b;
  if (op == DSC_OP_MIN) return a < b ? a : b;
  return a + b;
}

static double combine_double(double a, double b, dsc_op_t op) {
  if (op == DSC_OP_PROD) return a * b;
  if (op == DSC_OP_MAX) return a > b ? a : b;
  if (op == DSC_OP_MIN) return a < b ? a : b;
  return a + b;
}

static uint64_t combine_integer(uint64_t a, uint64_t b, int is_signed, dsc_op_t op) {
  const int less = is_signed ? (int64_t)a < (int64_t)b : a < b;
  switch (op) {
    case DSC_OP_PROD:
      return a * b;
    case DSC_OP_MAX:
      return less ? b : a;
    case DSC_OP_MIN:
      return less ? a : b;
    case DSC_OP_BAND:
      return a & b;
    case DSC_OP_BOR:
      return a | b;
    case DSC_OP_BXOR:
      return a ^ b;
    default:
      return a + b;
  }
}

static void reduce_period(period_t result, const period_t* inputs, int32_t n, dsc_dtype_t dtype,
                          dsc_op_t op) {
  const size_t bytes = element_bytes(dtype);
  const int is_signed = dtype == DSC_DTYPE_I8 || dtype == DSC_DTYPE_I32 || dtype == DSC_DTYPE_I64;
  if (dtype == DSC_DTYPE_BOOL && op == DSC_OP_SUM) op = DSC_OP_BOR;
  for (size_t i = 0; i < PERIOD; ++i) {
    if (dtype == DSC_DTYPE_F64) {
      double value = load_double(inputs[0], i);
      for (int32_t r = 1; r < n; ++r) value = combine_double(value, load_double(inputs[r], i), op);
      if (op == DSC_OP_AVG) value /= (double)n;
      memcpy(result + 8 * i, &value, 8);
    } else if (is_real(dtype)) {
      float value = load_float(inputs[0], i, dtype);
      for (int32_t r = 1; r < n; ++r) value = combine_float(value, load_float(inputs[r], i, dtype), op);
      if (op == DSC_OP_AVG) value /= (float)n;
      store_float(result, i, dtype, value);
    } else {
      uint64_t value = load_integer(inputs[0], i, bytes, is_signed);
      for (int32_t r = 1; r < n; ++r)
        value = combine_integer(value, load_integer(inputs[r], i, bytes, is_signed), is_signed, op);
      memcpy(result + bytes * i, &value, bytes);
    }
  }
}

void reduce_reference(void* result, size_t first, size_t count, dsc_dtype_t dtype, dsc_op_t op, uint64_t seed,
                      int32_t n) {
  period_t* inputs = malloc((size_t)n * sizeof *inputs);
  if (inputs == NULL) abort();
  for (int32_t r = 0; r < n; ++r) make_period(inputs[r], dtype, seed + (uint64_t)r);
  period_t period;
  reduce_period(period, (const period_t*)inputs, n, dtype, op);
  repeat(result, period, first, count, element_bytes(dtype));
  free(inputs);
}
