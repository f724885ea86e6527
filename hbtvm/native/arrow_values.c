/* Values of columns, one by one. */
#include "arrow_internal.h"

static int bit(const uint8_t *bits, int64_t at) { return bits[at >> 3] >> (at & 7) & 1; }

int is_null(const struct column *c, int64_t row) {
  if (c->batch_valid && !bit(c->batch_valid, c->batch_offset + row)) return 1;
  if (c->type == NULLS) return 1;
  return c->valid && !bit(c->valid, c->offset + row);
}

int has_nulls(const struct column *c) {
  if (c->type != NULLS && !c->valid && !c->batch_valid) return 0;
  for (int64_t i = 0; i < c->n; ++i)
    if (is_null(c, i)) return 1;
  return 0;
}

int is_integer(const struct column *c) { return c->type >= I8 && c->type <= U64; }
int is_float(const struct column *c) { return c->type >= HALF && c->type <= DOUBLE; }

uint64_t bits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

double double_of(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

float half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31, fraction = half & 1023u, bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | fraction << 13;
  } else if (exponent) {
    bits = sign | (exponent + 112) << 23 | fraction << 13;
  } else {
    float x = (float)fraction / 16777216.0f; /* 2^24 */
    return sign ? -x : x;
  }
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

#define LOAD(type, variable, at) \
  type variable;                 \
  memcpy(&variable, data + (int64_t)sizeof variable * (at), sizeof variable)

static int64_t integer_at(enum column_type type, const uint8_t *data, int64_t at) {
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

int64_t level_of(const struct column *c, int64_t row) {
  /* What of uint64 is negative here is beyond all levels anyway. */
  return integer_at(c->type == LEVELS ? c->index : c->type, c->data, c->offset + row);
}

static double float_at(enum column_type type, const uint8_t *data, int64_t at) {
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

static struct value text_at(const struct column *c, int64_t at) {
  struct value v = {HBTVM_TEXT, 0, 0.0, NULL, 0};
  const uint8_t *data = c->data;
  if (c->type == TEXT_VIEWS) {
    int32_t view[4];
    memcpy(view, data + 16 * at, sizeof view);
    v.size = view[0];
    v.text = v.size <= 12 ? data + 16 * at + 4 : (const uint8_t *)c->views[view[2]] + view[3];
  } else if (c->type == TEXTS) {
    LOAD(int32_t, first, at);
    LOAD(int32_t, end, at + 1);
    v.size = (int64_t)end - first;
    v.text = c->bytes ? c->bytes + first : NULL;
  } else {
    LOAD(int64_t, first, at);
    LOAD(int64_t, end, at + 1);
    v.size = end - first;
    v.text = c->bytes ? c->bytes + first : NULL;
  }
  return v;
}

struct value value_of(const struct column *c, int64_t row) {
  struct value v = {HBTVM_NO_VALUE, 0, 0.0, NULL, 0};
  int64_t at = c->offset + row;
  if (is_null(c, row)) return v;
  if (c->type == LEVELS) return value_of(c->levels, level_of(c, row));
  if (c->type >= TEXTS) return text_at(c, at);
  if (is_float(c)) {
    v.kind = HBTVM_NUMBER;
    v.number = float_at(c->type, c->data, at);
    return v;
  }
  v.integer = c->type == BOOLS ? bit(c->data, at) : integer_at(c->type, c->data, at);
  v.kind = c->type == U64 && v.integer < 0 ? HBTVM_UNSIGNED : HBTVM_INTEGER;
  return v;
}

double as_number(struct value v) {
  if (v.kind == HBTVM_INTEGER) return (double)v.integer;
  if (v.kind == HBTVM_UNSIGNED) return (double)(uint64_t)v.integer;
  return v.kind == HBTVM_NUMBER ? v.number : double_of(UINT64_C(0x7ff8000000000000));
}
