/* Epilogues; see epilogue.h. */

/* Without this, gcc does not vectorise comparisons; results do not change. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "epilogue/epilogue.h"

#include <string.h>

#include "epilogue/coupling.h"
#include "epilogue/functions.h"
#include "epilogue/transforms.h"

/* Convert a double to an integer as x86 processors do. */
static inline int64_t whole(double x) {
  return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

static inline int32_t whole_short(double x) {
  return x > -0x1p31 - 1 && x < 0x1p31 ? (int32_t)x : INT32_MIN;
}

/* Write values, cast to a type. */
static void written(struct values v, int64_t type, void *out) {
  if (v.stride == v.width) {
    v.width *= v.n;
    v.n = 1;
  }
  for (int64_t i = 0; i < v.n; ++i) {
    const double *x = v.x + i * v.stride;
    int64_t at = i * v.width;
    switch (type) {
      case HBTVM_F32:
        for (int64_t j = 0; j < v.width; ++j) ((float *)out)[at + j] = (float)x[j];
        break;
      case HBTVM_I64:
        for (int64_t j = 0; j < v.width; ++j) ((int64_t *)out)[at + j] = whole(x[j]);
        break;
      case HBTVM_I32:
        for (int64_t j = 0; j < v.width; ++j) ((int32_t *)out)[at + j] = whole_short(x[j]);
        break;
      default: memcpy((double *)out + at, x, (size_t)v.width * sizeof *x);
    }
  }
}

static void with_complements(const struct epilogue *e, struct values v, void *out) {
  if (e->type == HBTVM_F32) {
    float *to = out;
    for (int64_t i = 0; i < v.n; ++i) {
      float second = (float)v.x[i * v.stride];
      to[2 * i] = 1.0f - second;
      to[2 * i + 1] = second;
    }
    return;
  }
  double *to = out;
  for (int64_t i = 0; i < v.n; ++i) {
    double second = v.x[i * v.stride];
    to[2 * i] = 1.0 - second;
    to[2 * i + 1] = second;
  }
}

/* Reduce each row's values to the position of each target's largest value, in place. */
static void positions(const struct epilogue *e, struct values v) {
  for (int64_t i = 0; i < v.n; ++i) {
    double *x = v.x + i * v.stride;
    /* No target's columns start before its result's place. */
    for (int64_t t = 0, from = 0; t < e->targets; from = e->ends[t++])
      x[t] = (double)largest_at(x + from, e->ends[t] - from);
  }
}

/* Write labels of `item` bytes; callers pass a constant for numeric labels. */
static inline int64_t looked_up(const struct epilogue *e, struct values v, uint8_t *out, int64_t item) {
  const uint8_t *table = e->table;
  const int64_t *labels = e->labels, columns = e->columns;
  for (int64_t i = 0; i < v.n; ++i)
    for (int64_t t = 0; t < columns; ++t, out += item) {
      int64_t from = labels[t], count = labels[t + 1] - from, at = whole(v.x[i * v.stride + t]);
      if (at < -count || at >= count) return i;
      at += at < 0 ? count : 0;
      if (table)
        memcpy(out, table + (from + at) * item, (size_t)item);
      else
        memcpy(out, &at, sizeof at);
    }
  return -1;
}

/* Write labels, or their positions within their target's labels. Returns as `hbtvm_finish` does. */
static int64_t labelled(const struct epilogue *e, struct values v, uint8_t *out) {
  switch (e->item) {
    case 8: return looked_up(e, v, out, 8);
    case 4: return looked_up(e, v, out, 4);
    case 1: return looked_up(e, v, out, 1);
    default: return looked_up(e, v, out, e->item);
  }
}

int64_t hbtvm_finish(const struct epilogue *e, double *raw, int64_t stride, int64_t n, void *out) {
  struct values v = {raw + e->first, e->last - e->first, stride, n};
  if (e->plain) {
    written(v, e->type, out);
    return -1;
  }
  if (e->rule == HBTVM_COUPLED) {
    for (int64_t i = 0; i < n; ++i) coupled(v.x + i * stride, e->columns, (double *)out + i * e->columns);
    return -1;
  }
  int single = e->single != 0;
  if (single) each(v, rounded_single, 0);
  for (int64_t s = 0; s < e->steps; ++s) stepped(v, e->step[s], single, e->constants + s * v.width);
  if (e->rule == HBTVM_WITH_COMPLEMENT) {
    with_complements(e, v, out);
    return -1;
  }
  if (e->rule == HBTVM_LARGEST) positions(e, v);
  v.width = e->columns;
  if (e->labels) return labelled(e, v, out);
  written(v, e->type, out);
  return -1;
}
