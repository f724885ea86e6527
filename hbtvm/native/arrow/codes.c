/* Codes of values, from precomputed tables. */
#include <math.h>

#include "arrow/internal.h"

#define START UINT64_C(0xcbf29ce484222325)
#define FACTOR UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * FACTOR;
  return hash ^ hash >> 32;
}

/* Load up to 8 bytes, little-endian. */
static inline uint64_t word_of(const uint8_t *bytes, int64_t size) {
  uint64_t word = 0;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  if (size == 8) {
    memcpy(&word, bytes, 8);
    return word;
  }
#endif
  for (int64_t i = 0; i < size; ++i) word |= (uint64_t)bytes[i] << 8 * i;
  return word;
}

uint64_t hbtvm_hash_known(int64_t kind, const uint8_t *bytes, int64_t size) {
  uint64_t hash = START ^ (uint64_t)kind ^ (uint64_t)size << 8;
  int64_t i = 0;
  for (; i + 8 <= size; i += 8) hash = mixed(hash, word_of(bytes + i, 8));
  return i < size ? mixed(hash, word_of(bytes + i, size - i)) : hash;
}

static uint64_t hash_number(int64_t kind, uint64_t bits) { return mixed(START ^ (uint64_t)kind ^ 8 << 8, bits); }

/* Equal numbers have the same kind and bits; NaN equals none. */
static inline int64_t canonical(const struct value *v, uint64_t *bits) {
  if (v->kind != HBTVM_NUMBER) {
    *bits = (uint64_t)v->integer;
    return v->kind;
  }
  if (v->number >= -0x1p63 && v->number < 0x1p63 && v->number == (double)(int64_t)v->number) {
    *bits = (uint64_t)(int64_t)v->number;
    return HBTVM_INTEGER;
  }
  if (v->number >= 0x1p63 && v->number < 0x1p64) {
    *bits = (uint64_t)v->number;
    return HBTVM_UNSIGNED;
  }
  *bits = bits_of(v->number);
  return HBTVM_NUMBER;
}

int64_t code_of(const struct codes *codes, const struct value *v, enum form form) {
  uint64_t mask = (UINT64_C(1) << codes->bits) - 1, bits = 0, hash;
  int64_t kind = v->kind;
  if (kind == HBTVM_NO_VALUE) return codes->none;
  if (kind == HBTVM_TEXT) {
    hash = hbtvm_hash_known(kind, v->text, v->size);
  } else {
    if (kind == HBTVM_NUMBER && isnan(v->number)) return codes->nan[form];
    kind = canonical(v, &bits);
    hash = hash_number(kind, bits);
  }
  for (uint64_t at = hash & mask;; at = (at + 1) & mask) {
    const struct known *one = &codes->slots[at];
    if (one->kind == HBTVM_NO_VALUE) return codes->other;
    if (one->kind != kind) continue;
    if (kind != HBTVM_TEXT ? one->bits == bits
                           : one->size == v->size &&
                                 (!v->size || !memcmp(codes->pool + one->bits, v->text, (size_t)v->size)))
      return one->codes[form];
  }
}

/* The meaning of a missing value: NaN or None. */
static struct value missing(int none) {
  struct value v = {none ? HBTVM_NO_VALUE : HBTVM_NUMBER, 0, double_of(UINT64_C(0x7ff8000000000000)), NULL, 0};
  return v;
}

static int refused(struct reading *r, int64_t column, int64_t row) {
  const struct column *c = &r->column[column];
  struct value v = value_of(c, row);
  int lost = v.kind == HBTVM_NO_VALUE || (v.kind == HBTVM_NUMBER && isnan(v.number));
  return fail(r, lost ? HBTVM_ARROW_NULL : HBTVM_ARROW_UNKNOWN_CATEGORY, column, row);
}

/* Compute the codes of a column's rows. none: whether a null is None. narrowed: whether numbers are looked up in their
 * column's type. */
int find_codes(struct reading *r, int64_t column, const struct codes *codes, int none, int narrowed, int64_t *out) {
  const struct column *c = &r->column[column];
  enum form form = c->type == DOUBLE ? HBTVM_FORM_F64 : HBTVM_FORM_F32;
  if (!narrowed || !is_float(c)) form = HBTVM_FORM_VALUE;
  struct value v = missing(none && (r->one || !is_float(c)));
  int64_t lost = code_of(codes, &v, form), *level = NULL;
  if (c->type == LEVELS) {
    level = new_array(c->levels->n, 1, sizeof *level);
    if (!level) return HBTVM_NO_MEMORY;
    for (int64_t i = 0; i < c->levels->n; ++i) {
      /* A null level is None, whatever a null row is. */
      v = value_of(c->levels, i);
      level[i] = code_of(codes, &v, HBTVM_FORM_VALUE);
      if (r->one && is_null(c->levels, i)) level[i] = lost;
    }
  }
  int status = HBTVM_OK;
  for (int64_t i = 0; i < c->n && !status; ++i) {
    if (is_null(c, i)) {
      out[i] = lost;
    } else if (level) {
      out[i] = level[level_of(c, i)];
    } else {
      /* Creating a value and copying it takes longer than the lookup. */
      load_value(c, i, &v);
      out[i] = code_of(codes, &v, form);
    }
    if (out[i] == HBTVM_CODE_REFUSED) status = refused(r, column, i);
  }
  free(level);
  return status;
}
