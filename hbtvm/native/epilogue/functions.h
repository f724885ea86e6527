/* Branch-free functions, so that compilers vectorise loops over them. */
#ifndef HBTVM_EPILOGUE_FUNCTIONS_H
#define HBTVM_EPILOGUE_FUNCTIONS_H

#include <stdint.h>
#include <string.h>

/* Adding this to a number below 2^51 rounds it to an integer, which the sum's lowest bits hold. */
#define ROUNDER 0x1.8p52
#define LOG2_E 0x1.71547652b82fep+0
/* The logarithm of 2 in two parts; products of the first with integers of 11 bits are exact. */
#define LN2_HIGH 0x1.62e42fee00000p-1
#define LN2_LOW 0x1.a39ef35793c76p-33

static inline double at_most(double x, double bound) { return x > bound ? bound : x; } /* NaN stays */
static inline double at_least(double x, double bound) { return x < bound ? bound : x; }

/* Return 2 to the power of an integer from -1022 to 1023, given as its sum with ROUNDER. */
static inline double power_of_two(double rounded) {
  uint64_t bits;
  memcpy(&bits, &rounded, sizeof bits);
  bits = (bits << 52) + (UINT64_C(1023) << 52);
  double power;
  memcpy(&power, &bits, sizeof power);
  return power;
}

/* Return e to the power of x, within 0.7 units in the last place, or 1 unit below 2e-308. */
static inline double exponential(double x) {
  x = at_least(at_most(x, 710.0), -746.0);
  double rounded = x * LOG2_E + ROUNDER, whole = rounded - ROUNDER;
  double high = x - whole * LN2_HIGH, low = whole * LN2_LOW;
  double r = high - low, rest = (high - r) - low, r2 = r * r, r4 = r2 * r2;
  /* The series of (exp(r) - 1 - r) / r^2, for abs(r) < 0.347. */
  double a = (1.0 / 2 + r * (1.0 / 6)) + r2 * (1.0 / 24 + r * (1.0 / 120));
  double b = (1.0 / 720 + r * (1.0 / 5040)) + r2 * (1.0 / 40320 + r * (1.0 / 362880));
  double c = (1.0 / 3628800 + r * (1.0 / 39916800)) + r2 * (1.0 / 479001600 + r * (1.0 / 6227020800));
  double q = r2 * (a + r4 * (b + r4 * c));
  /* Add the rounding error of 1 + r to the small terms. */
  double sum = 1.0 + r, lost = r - (sum - 1.0);
  double e = sum + (q + (lost + rest));
  /* Apply a power below the smallest number's in two steps. */
  double half = whole * 0.5 + ROUNDER, other = (whole - (half - ROUNDER)) + ROUNDER;
  return e * power_of_two(half) * power_of_two(other);
}

/* As above for float32, rounded to float32. */
static inline float exponential_single(float power) {
  double x = at_least(at_most((double)power, 89.0), -104.0);
  double rounded = x * LOG2_E + ROUNDER, whole = rounded - ROUNDER;
  double r = x - whole * 0x1.62e42fefa39efp-1, r2 = r * r, r4 = r2 * r2;
  double a = (1.0 + r) + r2 * (1.0 / 2 + r * (1.0 / 6));
  double b = (1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040));
  double c = 1.0 / 40320 + r * (1.0 / 362880);
  return (float)((a + r4 * (b + r4 * c)) * power_of_two(rounded));
}

#define FEW 8
#define BLOCK 128

/* Return the sum of numbers, added in numpy's order. */
#define DEFINE_TOTAL(name, type)                                                                \
  static type name(const double *x, int64_t n) {                                                \
    type sum = 0;                                                                               \
    if (n < FEW) {                                                                              \
      for (int64_t i = 0; i < n; ++i) sum += (type)x[i];                                        \
      return sum;                                                                               \
    }                                                                                           \
    if (n > BLOCK) {                                                                            \
      int64_t half = n / 2 / FEW * FEW;                                                         \
      return name(x, half) + name(x + half, n - half);                                          \
    }                                                                                           \
    type s[FEW];                                                                                \
    for (int j = 0; j < FEW; ++j) s[j] = (type)x[j];                                            \
    int64_t i = FEW;                                                                            \
    for (; i < n - n % FEW; i += FEW)                                                           \
      for (int j = 0; j < FEW; ++j) s[j] += (type)x[i + j];                                     \
    sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));                    \
    for (; i < n; ++i) sum += (type)x[i];                                                       \
    return sum;                                                                                 \
  }

DEFINE_TOTAL(total, double)
DEFINE_TOTAL(total_single, float)

/* Return the largest of some numbers; with NaN among them, any of them or NaN. */
static inline double largest(const double *x, int64_t n) {
  double most = x[0];
  for (int64_t i = 1; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

/* Return the position of the largest number: the first of equal numbers; the first NaN, if there is one. */
static inline int64_t largest_at(const double *x, int64_t n) {
  double most = x[0];
  int64_t at = 0;
  int missing = most != most;
  for (int64_t i = 1; i < n; ++i) {
    int more = x[i] > most;
    most = more ? x[i] : most;
    at = more ? i : at;
    missing |= x[i] != x[i];
  }
  if (!missing) return at;
  for (at = 0; x[at] == x[at];) ++at;
  return at;
}

#endif
