/* Columns of a batch, and their values one by one. */
#ifndef HBTVM_ARROW_VALUES_H
#define HBTVM_ARROW_VALUES_H

#include <string.h>

#include "arrow/arrow.h"

/* Supported types of columns. */
enum column_type {
  NULLS, BOOLS, I8, I16, I32, I64, U8, U16, U32, U64, HALF, SINGLE, DOUBLE, TEXTS, LARGE_TEXTS, TEXT_VIEWS, LEVELS,
  VALUES /* `data`: values, not of Arrow */
};

/* A checked column of a batch. Its row i is entry `offset + i` of its buffers. */
struct column {
  enum column_type type;
  int64_t n, offset;
  const uint8_t *valid; /* null without nulls */
  const uint8_t *batch_valid;
  int64_t batch_offset;
  const uint8_t *data;
  const uint8_t *bytes;          /* of texts */
  const void *const *views;      /* of texts' views: buffers */
  enum column_type index;        /* of LEVELS */
  struct column *levels;         /* of LEVELS; else null */
};

/* One value. */
struct value {
  enum known_kind kind; /* HBTVM_NO_VALUE: null */
  int64_t integer;      /* INTEGER; UNSIGNED: its bits */
  double number;        /* NUMBER: also NaN */
  const uint8_t *text;
  int64_t size;
};

#define has_nulls hbtvm_arrow_has_nulls
#define half_to_float hbtvm_arrow_half_to_float

int has_nulls(const struct column *c);
float half_to_float(uint16_t half);

static inline int bit(const uint8_t *bits, int64_t at) { return bits[at >> 3] >> (at & 7) & 1; }

static inline int is_null(const struct column *c, int64_t row) {
  if (c->batch_valid && !bit(c->batch_valid, c->batch_offset + row)) return 1;
  if (c->type == NULLS) return 1;
  if (c->type == VALUES) return ((const struct value *)(const void *)c->data)[row].kind == HBTVM_NO_VALUE;
  return c->valid && !bit(c->valid, c->offset + row);
}

static inline int is_integer(const struct column *c) { return c->type >= I8 && c->type <= U64; }
static inline int is_float(const struct column *c) { return c->type >= HALF && c->type <= DOUBLE; }

static inline uint64_t bits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline double double_of(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

#define LOAD(type, variable, at) \
  type variable;                 \
  memcpy(&variable, data + (int64_t)sizeof variable * (at), sizeof variable)

static inline int64_t integer_at(enum column_type type, const uint8_t *data, int64_t at) {
  switch (type) {
    case I8: {
      LOAD(int8_t, x, at);
      return x;
    }
    case I16: {
      LOAD(int16_t, x, at);
      return x;
    }
    case I32: {
      LOAD(int32_t, x, at);
      return x;
    }
    case U8: return data[at];
    case U16: {
      LOAD(uint16_t, x, at);
      return x;
    }
    case U32: {
      LOAD(uint32_t, x, at);
      return x;
    }
    default: {
      LOAD(int64_t, x, at);
      return x;
    }
  }
}

/* The level of a row that is not null. */
static inline int64_t level_of(const struct column *c, int64_t row) {
  /* uint64 values that are negative here are out of range anyway. */
  return integer_at(c->type == LEVELS ? c->index : c->type, c->data, c->offset + row);
}

static inline double float_at(enum column_type type, const uint8_t *data, int64_t at) {
  if (type == HALF) {
    LOAD(uint16_t, x, at);
    return (double)half_to_float(x);
  }
  if (type == SINGLE) {
    LOAD(float, x, at);
    return (double)x;
  }
  LOAD(double, x, at);
  return x;
}

static inline void load_text(const struct column *c, int64_t at, struct value *out) {
  const uint8_t *data = c->data;
  out->kind = HBTVM_TEXT;
  if (c->type == TEXT_VIEWS) {
    int32_t view[4];
    memcpy(view, data + 16 * at, sizeof view);
    out->size = view[0];
    out->text = view[0] <= 12 ? data + 16 * at + 4 : (const uint8_t *)c->views[view[2]] + view[3];
    return;
  }
  int64_t begin, stop;
  if (c->type == TEXTS) {
    LOAD(int32_t, first, at);
    LOAD(int32_t, end, at + 1);
    begin = first;
    stop = end;
  } else {
    LOAD(int64_t, first, at);
    LOAD(int64_t, end, at + 1);
    begin = first;
    stop = end;
  }
  out->size = stop - begin;
  out->text = c->bytes ? c->bytes + begin : NULL;
}

/* Return a row's value; only the fields of its kind are set. */
static inline void load_value(const struct column *c, int64_t row, struct value *out) {
  int64_t at = c->offset + row;
  int null = is_null(c, row);
  if (!null && c->type == LEVELS) {
    at = level_of(c, row);
    c = c->levels;
    null = is_null(c, at);
    at += c->offset;
  }
  if (null) {
    out->kind = HBTVM_NO_VALUE;
  } else if (c->type == VALUES) {
    *out = ((const struct value *)(const void *)c->data)[at];
  } else if (c->type >= TEXTS) {
    load_text(c, at, out);
  } else if (is_float(c)) {
    out->kind = HBTVM_NUMBER;
    out->number = float_at(c->type, c->data, at);
  } else {
    out->integer = c->type == BOOLS ? bit(c->data, at) : integer_at(c->type, c->data, at);
    out->kind = c->type == U64 && out->integer < 0 ? HBTVM_UNSIGNED : HBTVM_INTEGER;
  }
}

static inline struct value value_of(const struct column *c, int64_t row) {
  struct value v = {HBTVM_NO_VALUE, 0, 0.0, NULL, 0};
  load_value(c, row, &v);
  return v;
}

/* Return NaN for a null; fail for a text. */
static inline double as_number(struct value v) {
  if (v.kind == HBTVM_INTEGER) return (double)v.integer;
  if (v.kind == HBTVM_UNSIGNED) return (double)(uint64_t)v.integer;
  return v.kind == HBTVM_NUMBER ? v.number : double_of(UINT64_C(0x7ff8000000000000));
}

#undef LOAD

#endif
