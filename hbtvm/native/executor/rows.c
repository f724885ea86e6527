#include "executor/rows.h"

#include <string.h>

/* NaN and infinities have all exponent bits set. Integers are compared, since compilers vectorise that without
 * permission to reorder floats. */
#define EXPONENT32 0x7f800000u
#define EXPONENT64 0x7ff0000000000000u

/* Values checked between two decisions: 16 KB of float32, which stay in the first-level cache. */
#define SPAN 4096

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

/* Return whether n values are finite. Few instructions for each: more rows are then on their way from memory. */
static int finite32(const float *x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = bits32(x + i) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest < EXPONENT32;
}

/* No vector instruction takes the maximum of 64-bit integers before AVX-512. */
static int finite64(const double *x, int64_t n) {
  uint64_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= (bits64(x + i) & EXPONENT64) == EXPONENT64;
  return !found;
}

/* Return enum refused of a value, without branches. */
static inline uint32_t kind32(const float *x) {
  uint32_t bits = bits32(x) & 0x7fffffffu;
  return (bits > EXPONENT32 ? HBTVM_REFUSES_NAN : 0u) | (bits == EXPONENT32 ? HBTVM_REFUSES_INFINITY : 0u);
}

static inline uint64_t kind64(const double *x) {
  uint64_t bits = bits64(x) & 0x7fffffffffffffffu;
  return (bits > EXPONENT64 ? HBTVM_REFUSES_NAN : 0u) | (bits == EXPONENT64 ? HBTVM_REFUSES_INFINITY : 0u);
}

static uint32_t kinds32(const float *x, int64_t n) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= kind32(x + i);
  return found;
}

static uint64_t kinds64(const double *x, int64_t n) {
  uint64_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= kind64(x + i);
  return found;
}

int hbtvm_kinds(int64_t type, const void *values, int64_t count) {
  uint64_t found = 0;
  for (int64_t start = 0; start < count; start += SPAN) {
    int64_t n = count - start < SPAN ? count - start : SPAN;
    if (type == HBTVM_F32) {
      const float *x = (const float *)values + start;
      if (!finite32(x, n)) found |= kinds32(x, n);
    } else {
      const double *x = (const double *)values + start;
      if (!finite64(x, n)) found |= kinds64(x, n);
    }
  }
  return (int)found;
}

/* Return which refused values a row holds. */
static uint64_t refused_in(const uint8_t *refuses, int64_t columns, int64_t type, const void *row) {
  if (type == HBTVM_F32) {
    const float *x = row;
    uint32_t found = 0;
    for (int64_t c = 0; c < columns; ++c) found |= kind32(x + c) & refuses[c];
    return found;
  }
  const double *x = row;
  uint64_t found = 0;
  for (int64_t c = 0; c < columns; ++c) found |= kind64(x + c) & refuses[c];
  return found;
}

int hbtvm_look(const uint8_t *refuses, int64_t columns, int64_t type, const void *rows, int64_t n,
               struct place *place) {
  int64_t item = type == HBTVM_F32 ? 4 : 8;
  const char *row = rows;
  for (int64_t r = 0; r < n; ++r, row += columns * item) {
    if (!refused_in(refuses, columns, type, row)) continue;
    for (int64_t c = 0; c < columns; ++c) {
      const void *at = row + c * item;
      uint64_t kind = (type == HBTVM_F32 ? kind32(at) : kind64(at)) & refuses[c];
      if (!kind) continue;
      place->row = r;
      place->column = c;
      return kind == HBTVM_REFUSES_NAN ? HBTVM_REFUSED_NAN : HBTVM_REFUSED_INFINITY;
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

/* Rows per block, so that their cache lines of the matrix stay in the cache until the next columns. */
#define INTERLEAVED 1024

/* Values of several columns are stored together, 16 bytes at a time: single stores a row apart are slower. */
#define INTERLEAVE(TYPE, TOGETHER)                                                  \
  do {                                                                              \
    TYPE *y = (TYPE *)out + start * count;                                          \
    int64_t c = 0;                                                                  \
    for (; c + (TOGETHER) <= count; c += (TOGETHER)) {                              \
      const TYPE *x[TOGETHER];                                                      \
      for (int j = 0; j < (TOGETHER); ++j) x[j] = (const TYPE *)columns[c + j] + start; \
      for (int64_t r = 0; r < rows; ++r) {                                          \
        TYPE values[TOGETHER];                                                      \
        for (int j = 0; j < (TOGETHER); ++j) values[j] = x[j][r];                   \
        memcpy(y + r * count + c, values, sizeof values);                           \
      }                                                                             \
    }                                                                               \
    for (; c < count; ++c) {                                                        \
      const TYPE *x = (const TYPE *)columns[c] + start;                             \
      for (int64_t r = 0; r < rows; ++r) y[r * count + c] = x[r];                   \
    }                                                                               \
  } while (0)

void hbtvm_interleave(const void *const *columns, int64_t count, int64_t bytes, int64_t n, void *out) {
  for (int64_t start = 0; start < n; start += INTERLEAVED) {
    int64_t rows = n - start < INTERLEAVED ? n - start : INTERLEAVED;
    if (bytes == 4) {
      INTERLEAVE(uint32_t, 4);
    } else {
      INTERLEAVE(uint64_t, 2);
    }
  }
}
