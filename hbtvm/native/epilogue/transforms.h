/* Steps. float32 values are stored as doubles, and each operation on them is rounded to float32. */
#ifndef HBTVM_EPILOGUE_TRANSFORMS_H
#define HBTVM_EPILOGUE_TRANSFORMS_H

#include <math.h>

#include "epilogue/epilogue.h"
#include "epilogue/functions.h"
#include "pointwise/functions.h"

/* The largest exponent in XGBoost's sigmoid, see MOST_POWER in hbtvm/operators/formulas.py. */
#define MOST_POWER 88.7f

/* Rows of `width` consecutive values, `stride` from one row to the next. */
struct values {
  double *x;
  int64_t width, stride, n;
};

/* Changes n consecutive values; `a` is the step's constant. */
typedef void change(double *x, int64_t n, double a);

static inline void each(struct values v, change *f, double a) {
  if (v.stride == v.width || v.n == 1) {
    f(v.x, v.n * v.width, a);
    return;
  }
  for (int64_t i = 0; i < v.n; ++i) f(v.x + i * v.stride, v.width, a);
}

/* A `change` for float64, and one for float32. */
#define DEFINE_CHANGE(name, expression)              \
  static void name(double *x, int64_t n, double a) { \
    (void)a;                                         \
    for (int64_t i = 0; i < n; ++i) {                \
      const double y = x[i];                         \
      x[i] = expression;                             \
    }                                                \
  }

#define DEFINE_SINGLE_CHANGE(name, expression)          \
  static void name(double *x, int64_t n, double wide) { \
    const float a = (float)wide;                        \
    (void)a;                                            \
    for (int64_t i = 0; i < n; ++i) {                   \
      const float y = (float)x[i];                      \
      x[i] = (double)(expression);                      \
    }                                                   \
  }

static inline float power_of(float y) { return -y > MOST_POWER ? MOST_POWER : -y; }

DEFINE_CHANGE(sums, (y + a))
DEFINE_CHANGE(differences, (y - a))
DEFINE_CHANGE(products, (y * a))
DEFINE_CHANGE(quotients, (y / a))
DEFINE_CHANGE(minima, at_most(y, a))
DEFINE_CHANGE(maxima, at_least(y, a))
DEFINE_CHANGE(above, y > a ? 1.0 : 0.0)
DEFINE_CHANGE(not_below, y >= a ? 1.0 : 0.0)
DEFINE_CHANGE(below, y < a ? 1.0 : 0.0)
DEFINE_CHANGE(powers, pow(a, y))

DEFINE_CHANGE(exponentials, exponential(y))
DEFINE_CHANGE(negatives, -y)
DEFINE_CHANGE(signs, sign(y))
DEFINE_CHANGE(squares, (y * y))
DEFINE_CHANGE(reciprocals, 1.0 / y)
DEFINE_CHANGE(sigmoids, 1.0 / (1.0 + exponential(-y)))
DEFINE_CHANGE(signed_squares, sign(y) * y * y)
DEFINE_CHANGE(likelier, y > 1.0 - y ? 1.0 : 0.0)

DEFINE_SINGLE_CHANGE(rounded_single, y)
DEFINE_SINGLE_CHANGE(exponentials_single, exponential_single(y))
DEFINE_SINGLE_CHANGE(squares_single, (y * y))
DEFINE_SINGLE_CHANGE(reciprocals_single, 1.0f / y)
DEFINE_SINGLE_CHANGE(sigmoids_single, 1.0f / (1.0f + exponential_single(power_of(y))))
DEFINE_SINGLE_CHANGE(signed_squares_single, (float)sign((double)y) * y * y)
DEFINE_SINGLE_CHANGE(likelier_single, y > 1.0f - y ? 1.0 : 0.0)

/* Steps with a constant, in their order; sums and products with float32 values are float64 until they are rounded. */
static change *const with_constant[] = {sums,  differences, products,  quotients, minima,
                                        maxima, above,      not_below, below,     powers};

/* Steps on each value, in their order, for float64 and float32. */
static change *const of_values[][2] = {
    {exponentials, exponentials_single}, {negatives, negatives},
    {signs, signs},                      {squares, squares_single},
    {reciprocals, reciprocals_single},   {sigmoids, sigmoids_single},
    {signed_squares, signed_squares_single}, {likelier, likelier_single}};

static void softmax(struct values v, int single) {
  for (int64_t i = 0; i < v.n; ++i) {
    double *x = v.x + i * v.stride, most = largest(x, v.width);
    if (single)
      for (int64_t j = 0; j < v.width; ++j) x[j] = (double)((float)x[j] - (float)most);
    else
      for (int64_t j = 0; j < v.width; ++j) x[j] -= most;
  }
  each(v, single ? exponentials_single : exponentials, 0);
  for (int64_t i = 0; i < v.n; ++i) {
    double *x = v.x + i * v.stride;
    if (single) {
      float sum = total_single(x, v.width);
      for (int64_t j = 0; j < v.width; ++j) x[j] = (double)((float)x[j] / sum);
    } else {
      double sum = total(x, v.width);
      for (int64_t j = 0; j < v.width; ++j) x[j] /= sum;
    }
  }
}

/* Divide each row by its sum, in float64; rows of zeros become equal shares. */
static void shares(struct values v) {
  for (int64_t i = 0; i < v.n; ++i) {
    double *x = v.x + i * v.stride, sum = total(x, v.width), none = sum == 0 ? 1.0 : 0.0;
    sum += none * (double)v.width;
    for (int64_t j = 0; j < v.width; ++j) x[j] = (x[j] + none) / sum;
  }
}

/* Functions of steps from HBTVM_FUNCTION on, computed in float64 and rounded for float32. */
#define DEFINE_FUNCTION(name, exact, wide, single) \
  static double function_##name(double x) { return wide; }
HBTVM_FUNCTIONS(DEFINE_FUNCTION)
#define FUNCTION_ADDRESS(name, exact, wide, single) function_##name,
static double (*const functions[])(double) = {HBTVM_FUNCTIONS(FUNCTION_ADDRESS)};

static void with_constants(struct values v, change *f, const double *constants) {
  int same = 1;
  for (int64_t j = 1; j < v.width; ++j) same &= constants[j] == constants[0];
  if (same) {
    each(v, f, constants[0]);
    return;
  }
  for (int64_t i = 0; i < v.n; ++i)
    for (int64_t j = 0; j < v.width; ++j) f(v.x + i * v.stride + j, 1, constants[j]);
}

static void stepped(struct values v, int64_t step, int single, const double *constants) {
  if (step < HBTVM_EXP) {
    with_constants(v, with_constant[step], constants);
  } else if (step < HBTVM_SOFTMAX) {
    each(v, of_values[step - HBTVM_EXP][single], 0);
    return;
  } else if (step == HBTVM_SOFTMAX) {
    softmax(v, single);
    return;
  } else if (step == HBTVM_SHARES) {
    shares(v);
  } else {
    double (*f)(double) = functions[step - HBTVM_FUNCTION];
    for (int64_t i = 0; i < v.n; ++i)
      for (int64_t j = 0; j < v.width; ++j) v.x[i * v.stride + j] = f(v.x[i * v.stride + j]);
  }
  if (single) each(v, rounded_single, 0);
}

#endif
