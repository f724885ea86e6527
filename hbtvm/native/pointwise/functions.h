/* Functions of one number: the C column of hbtvm/operators/pointwise.py.
 *
 * A row has the function's name there, or numpy's; EXACT if results equal numpy's to the last bit, or LIBM; the function of
 * a double x; and that of a float y. A function's number is the place of its row. hbtvm/runtime/native/functions.py reads
 * the names from this file.
 */
#ifndef HBTVM_POINTWISE_FUNCTIONS_H
#define HBTVM_POINTWISE_FUNCTIONS_H

#include <math.h>

#define HBTVM_PI 3.14159265358979323846

static inline double sign(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x == 0 ? 0.0 : x; }

#define HBTVM_FUNCTIONS(F)                                                        \
  F(sqrt, EXACT, sqrt(x), sqrtf(y))                                               \
  F(negative, EXACT, -x, -y)                                                      \
  F(positive, EXACT, x, y)                                                        \
  F(floor, EXACT, floor(x), floorf(y))                                            \
  F(ceil, EXACT, ceil(x), ceilf(y))                                               \
  F(rint, EXACT, rint(x), rintf(y))                                               \
  F(trunc, EXACT, trunc(x), truncf(y))                                            \
  F(sign, EXACT, sign(x), sign((double)y))                                        \
  F(square, EXACT, x * x, y * y)                                                  \
  F(absolute, EXACT, fabs(x), fabsf(y))                                           \
  F(reciprocal, EXACT, 1.0 / x, 1.0f / y)                                         \
  F(radians, EXACT, x * (HBTVM_PI / 180.0), y * ((float)HBTVM_PI / 180.0f))       \
  F(degrees, EXACT, x * (180.0 / HBTVM_PI), y * (180.0f / (float)HBTVM_PI))       \
  F(log, LIBM, log(x), logf(y))                                                   \
  F(log1p, LIBM, log1p(x), log1pf(y))                                             \
  F(log2, LIBM, log2(x), log2f(y))                                                \
  F(log10, LIBM, log10(x), log10f(y))                                             \
  F(exp, LIBM, exp(x), expf(y))                                                   \
  F(exp2, LIBM, exp2(x), exp2f(y))                                                \
  F(expm1, LIBM, expm1(x), expm1f(y))                                             \
  F(cbrt, LIBM, cbrt(x), cbrtf(y))                                                \
  F(arcsinh, LIBM, asinh(x), asinhf(y))                                           \
  F(arcsin, LIBM, asin(x), asinf(y))                                              \
  F(arctan, LIBM, atan(x), atanf(y))                                              \
  F(arctanh, LIBM, atanh(x), atanhf(y))                                           \
  F(tanh, LIBM, tanh(x), tanhf(y))                                                \
  F(sinh, LIBM, sinh(x), sinhf(y))                                                \
  F(cosh, LIBM, cosh(x), coshf(y))                                                \
  F(sin, LIBM, sin(x), sinf(y))                                                   \
  F(cos, LIBM, cos(x), cosf(y))                                                   \
  F(tan, LIBM, tan(x), tanf(y))

/* Numbers of functions: HBTVM_FUNCTION_sqrt and so on. */
#define HBTVM_NUMBERED(name, exact, wide, single) HBTVM_FUNCTION_##name,
enum function { HBTVM_FUNCTIONS(HBTVM_NUMBERED) HBTVM_FUNCTION_COUNT };

#endif
