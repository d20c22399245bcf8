#include "bounds.h"

#include <math.h>
#include <stdlib.h>

#include "reference.h"

/* Elements repeat after this number of elements, see reference.c. */
enum { PERIOD = 4099 };

typedef struct format {
  double unit;  /* the roundoff: half of the distance between neighboring numbers in [1, 2) */
  double least; /* half of the smallest number above zero */
  double most;
} format_t;

static format_t format_of(dsc_dtype_t dtype) {
  switch (dtype) {
    case DSC_DTYPE_F16:
      return (format_t){0x1p-11, 0x1p-25, 65504};
    case DSC_DTYPE_BF16:
      return (format_t){0x1p-8, 0x1p-134, 0x1.fep127};
    case DSC_DTYPE_F32:
      return (format_t){0x1p-24, 0x1p-150, 0x1.fffffep127};
    case DSC_DTYPE_F8E4M3:
      return (format_t){0x1p-4, 0x1p-10, 448};
    case DSC_DTYPE_F8E5M2:
      return (format_t){0x1p-3, 0x1p-17, 57344};
    default:
      return (format_t){0x1p-53, 0, 0x1.fffffffffffffp1023};
  }
}

bool has_bounds(dsc_op_t op, dsc_dtype_t dtype) {
  return op_is_offered(DSC_OP_AVG, dtype) && (op == DSC_OP_SUM || op == DSC_OP_PROD || op == DSC_OP_AVG);
}

/* Every rounding multiplies by 1 + d with |d| <= unit. So k roundings on the way of each input change a sum
 * by at most ((1 + unit)^k - 1) times the sum of magnitudes. The longest way in a sum of n inputs has n - 1
 * roundings, in any order. An average has two more if the inputs are first multiplied by a rounded 1/n. Sums
 * that are too small to be normal are exact. Such products have an error of `least`, times the later factors.
 */
static double bound_of(const format_t* format, dsc_op_t op, int32_t n, double magnitude) {
  const int32_t roundings = op == DSC_OP_AVG ? n + 1 : n - 1;
  double bound = magnitude * expm1(roundings * log1p(format->unit));
  if (op == DSC_OP_AVG) bound += n * format->least;
  if (op == DSC_OP_PROD && n > 1) bound += (n - 1) * format->least * pow(4, n - 2); /* inputs are below 4 */
  return bound * (1 + 0x1p-9); /* because long double rounds as well */
}

typedef struct expected {
  long double value[PERIOD];
  double bound[PERIOD];
} expected_t;

static void expect_period(expected_t* expected, dsc_dtype_t dtype, dsc_op_t op, uint64_t seed, int32_t n) {
  const format_t format = format_of(dtype);
  static const size_t bytes = sizeof(double); /* the size of the largest element */
  char* inputs = malloc((size_t)n * PERIOD * bytes);
  if (inputs == NULL) abort();
  for (int32_t r = 0; r < n; ++r)
    fill_elements(inputs + (size_t)r * PERIOD * bytes, 0, PERIOD, dtype, seed + (uint64_t)r);
  for (size_t i = 0; i < PERIOD; ++i) {
    long double value = op == DSC_OP_PROD ? 1 : 0, magnitude = value;
    for (int32_t r = 0; r < n; ++r) {
      const long double input = load_real(inputs + (size_t)r * PERIOD * bytes, i, dtype);
      value = op == DSC_OP_PROD ? value * input : value + input;
      magnitude = op == DSC_OP_PROD ? magnitude * fabsl(input) : magnitude + fabsl(input);
    }
    if (op == DSC_OP_AVG) value /= n, magnitude /= n;
    expected->value[i] = value;
    expected->bound[i] = bound_of(&format, op, n, (double)magnitude);
  }
  free(inputs);
}

bool is_within_bounds(const void* result, size_t first, size_t count, dsc_dtype_t dtype, dsc_op_t op,
                      uint64_t seed, int32_t n, stray_t* stray) {
  const double most = format_of(dtype).most;
  expected_t* expected = malloc(sizeof *expected);
  if (expected == NULL) abort();
  expect_period(expected, dtype, op, seed, n);
  size_t i = 0;
  for (; i < count; ++i) {
    const size_t phase = (first + i) % PERIOD;
    const long double value = expected->value[phase];
    const double bound = expected->bound[phase];
    const double came = load_real(result, i, dtype);
    const bool may_overflow = fabsl(value) + bound > most;
    *stray = (stray_t){i, came, (double)value, bound};
    if (!may_overflow && !(fabsl(came - value) <= bound)) break;
  }
  free(expected);
  return i == count;
}
