#include "rows.h"

#include <string.h>

/* Exponents of NaN and infinities have all bits set. Whole numbers are compared, which compilers vectorise without
 * being told that they may reorder floats. */
#define EXPONENT32 0x7f800000u
#define EXPONENT64 0x7ff0000000000000u

/* Values that are looked at between two decisions. */
#define SPAN 1024

static uint32_t bits32(const float *x) {
  uint32_t bits;
  memcpy(&bits, x, sizeof bits);
  return bits;
}

static uint64_t bits64(const double *x) {
  uint64_t bits;
  memcpy(&bits, x, sizeof bits);
  return bits;
}

int hbtvm_all_finite(int64_t type, const void *values, int64_t count) {
  for (int64_t start = 0; start < count; start += SPAN) {
    int64_t stop = count - start < SPAN ? count : start + SPAN;
    if (type == HBTVM_F32) {
      const float *x = values;
      uint32_t found = 0;
      for (int64_t i = start; i < stop; ++i) found |= (bits32(x + i) & EXPONENT32) == EXPONENT32;
      if (found) return 0;
    } else {
      const double *x = values;
      uint64_t found = 0;
      for (int64_t i = start; i < stop; ++i) found |= (bits64(x + i) & EXPONENT64) == EXPONENT64;
      if (found) return 0;
    }
  }
  return 1;
}

int hbtvm_some_nan(int64_t type, const void *values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    double x = type == HBTVM_F32 ? (double)((const float *)values)[i] : ((const double *)values)[i];
    if (x != x) return 1;
  }
  return 0;
}

int hbtvm_look(const uint8_t *refuses, int64_t columns, int64_t type, const void *rows, int64_t n, struct place *place) {
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      int64_t at = row * columns + column;
      double x = type == HBTVM_F32 ? (double)((const float *)rows)[at] : ((const double *)rows)[at];
      if (x - x == 0) continue;
      int is_nan = x != x;
      if (!(refuses[column] & (is_nan ? HBTVM_REFUSES_NAN : HBTVM_REFUSES_INFINITY))) continue;
      place->row = row;
      place->column = column;
      return is_nan ? HBTVM_REFUSED_NAN : HBTVM_REFUSED_INFINITY;
    }
  }
  return HBTVM_OK;
}

#define GATHER(FROM, TO)                                                            \
  do {                                                                              \
    const FROM *x = from;                                                           \
    TO *y = to;                                                                     \
    for (int64_t r = 0; r < n; ++r, x += from_stride, y += to_stride) {             \
      if (columns) {                                                                \
        for (int64_t c = 0; c < read; ++c) y[c] = (TO)x[columns[c]];                \
      } else {                                                                      \
        for (int64_t c = 0; c < read; ++c) y[c] = (TO)x[c];                         \
      }                                                                             \
    }                                                                               \
  } while (0)

void hbtvm_gather(const void *from, int64_t from_type, int64_t from_stride, const int64_t *columns, int64_t read,
                  int64_t n, void *to, int64_t to_type, int64_t to_stride) {
  if (from_type == HBTVM_F32 && to_type == HBTVM_F32) {
    GATHER(float, float);
  } else if (from_type == HBTVM_F32) {
    GATHER(float, double);
  } else if (to_type == HBTVM_F32) {
    GATHER(double, float);
  } else {
    GATHER(double, double);
  }
}
