/* Transforms and steps of values. float32 values are stored as doubles, and each operation on them is rounded to
 * float32. */
#ifndef HBTVM_EPILOGUE_TRANSFORMS_H
#define HBTVM_EPILOGUE_TRANSFORMS_H

#include <math.h>

#include "epilogue/epilogue.h"
#include "epilogue/functions.h"

/* The largest exponent in XGBoost's sigmoid, see MOST_POWER in hbtvm/graph/outputs/transforms.py. */
#define MOST_POWER 88.7f

/* Rows of `width` consecutive values, `stride` from one row to the next. */
struct values {
  double *x;
  int64_t width, stride, n;
};

/* Changes n consecutive values; `a` is the transform's number. */
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

static inline double sign(double y) { return y > 0 ? 1.0 : y < 0 ? -1.0 : y == 0 ? 0.0 : y; }
static inline float power_of(float y, float a) { return y * a > MOST_POWER ? MOST_POWER : y * a; }
static inline double cut(double y) { return (-at_most(-at_most(y, 1.0), 1.0) + 1.0) / 2.0; }

DEFINE_CHANGE(sigmoids, 1.0 / (1.0 + exponential(y * a)))
DEFINE_CHANGE(exponentials, exponential(y))
DEFINE_CHANGE(softplus, log1p(exponential(y)))
DEFINE_CHANGE(signed_squares, sign(y) * y * y)
DEFINE_CHANGE(hinges, y > 0 ? 1.0 : 0.0)
DEFINE_CHANGE(isolation, -(a == 0 ? y * 0.0 + 0.5 : pow(2.0, -(y / a))))
DEFINE_CHANGE(cuts, cut(y))
DEFINE_CHANGE(negatives, -y)
DEFINE_CHANGE(signs, sign(y))
DEFINE_CHANGE(squares, (y * y))
DEFINE_CHANGE(reciprocals, 1.0 / y)
DEFINE_CHANGE(products, (y * a))

DEFINE_SINGLE_CHANGE(rounded_single, y)
DEFINE_SINGLE_CHANGE(sigmoids_single, 1.0f / (1.0f + exponential_single(power_of(y, a))))
DEFINE_SINGLE_CHANGE(exponentials_single, exponential_single(y))
DEFINE_SINGLE_CHANGE(softplus_single, (float)log1p((double)exponential_single(y)))
DEFINE_SINGLE_CHANGE(signed_squares_single, (float)sign((double)y) * y * y)
DEFINE_SINGLE_CHANGE(squares_single, (y * y))
DEFINE_SINGLE_CHANGE(reciprocals_single, 1.0f / y)
DEFINE_SINGLE_CHANGE(products_single, (y * a))

/* A float64 product of scores that are not rounded before. */
static void scaled(double *x, int64_t n, double a) {
  for (int64_t i = 0; i < n; ++i) x[i] *= a;
}

static void softmax(struct values v, int64_t single) {
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

/* Compute the values from scores. */
static void transformed(const struct epilogue *e, struct values v) {
  int64_t single = e->single;
  double a = e->factor;
  if (e->transform == HBTVM_SCALED) each(v, scaled, a);
  if (single) each(v, rounded_single, 0);
  switch (e->transform) {
    case HBTVM_SIGMOID: each(v, single ? sigmoids_single : sigmoids, a); break;
    case HBTVM_SOFTMAX: softmax(v, single); break;
    case HBTVM_EXP: each(v, single ? exponentials_single : exponentials, a); break;
    case HBTVM_SOFTPLUS: each(v, single ? softplus_single : softplus, a); break;
    case HBTVM_SIGNED_SQUARE: each(v, single ? signed_squares_single : signed_squares, a); break;
    case HBTVM_HINGE: each(v, hinges, a); break;
    case HBTVM_ISOLATION: each(v, isolation, a); break;
    case HBTVM_ONE_VS_REST:
      each(v, sigmoids, a);
      shares(v);
      break;
    case HBTVM_MODIFIED_HUBER:
      each(v, cuts, a);
      if (v.width > 1) shares(v);
      break;
    default: break;
  }
}

/* Functions of steps from HBTVM_STEP_LIBRARY on, computed in float64 and rounded for float32. */
static double (*const library[])(double) = {log,   log1p, log2, log10, exp2, expm1, sqrt, cbrt, asinh, atan,
                                            tanh,  sinh,  cosh, sin,   cos,  tan,   floor, ceil, rint, trunc,
                                            fabs};

/* The constants are float64; sums and products with float32 values are float64 until they are rounded. */
static void with_constants(struct values v, int64_t step, const double *constants) {
  for (int64_t i = 0; i < v.n; ++i) {
    double *x = v.x + i * v.stride;
    for (int64_t j = 0; j < v.width; ++j) {
      double c = constants[j];
      x[j] = step == HBTVM_ADD        ? x[j] + c
             : step == HBTVM_SUBTRACT ? x[j] - c
             : step == HBTVM_MULTIPLY ? x[j] * c
                                      : x[j] / c;
    }
  }
}

static void stepped(struct values v, int64_t step, int64_t single, const double *constants) {
  if (step <= HBTVM_DIVIDE) {
    with_constants(v, step, constants);
    if (single) each(v, rounded_single, 0);
    return;
  }
  if (step >= HBTVM_STEP_LIBRARY) {
    double (*f)(double) = library[step - HBTVM_STEP_LIBRARY];
    for (int64_t i = 0; i < v.n; ++i)
      for (int64_t j = 0; j < v.width; ++j) v.x[i * v.stride + j] = f(v.x[i * v.stride + j]);
    if (single) each(v, rounded_single, 0);
    return;
  }
  const double pi = 0x1.921fb54442d18p+1;
  switch (step) {
    case HBTVM_STEP_EXP: each(v, single ? exponentials_single : exponentials, 0); break;
    case HBTVM_STEP_NEGATIVE: each(v, negatives, 0); break;
    case HBTVM_STEP_SIGN: each(v, signs, 0); break;
    case HBTVM_STEP_SQUARE: each(v, single ? squares_single : squares, 0); break;
    case HBTVM_STEP_RECIPROCAL: each(v, single ? reciprocals_single : reciprocals, 0); break;
    case HBTVM_STEP_RADIANS: each(v, single ? products_single : products, pi / 180); break;
    case HBTVM_STEP_DEGREES: each(v, single ? products_single : products, 180 / pi); break;
    default: break;
  }
}

#endif
