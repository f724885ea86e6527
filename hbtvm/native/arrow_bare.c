/* The rows of a model without feeds, and which type they have; see `hbtvm.runtime.inputs.Inputs`. */
#include <math.h>

#include "arrow_internal.h"

/* float32 holds every integer up to this. */
#define EXACT (INT64_C(1) << 24)

/* The types of all columns, whose common one the rows have at first. */
struct common {
  int real, wide_real; /* a column of floats; of float64, or integers of 32 bits and more */
  int is_signed, u64, large;
};

static int has_missing_level(const struct column *c, int64_t row) {
  struct value v = value_of(c, row);
  return v.kind == HBTVM_NO_VALUE || (v.kind == HBTVM_NUMBER && isnan(v.number));
}

/* Values of which all are missing: a column of numbers. */
static int all_missing(const struct column *c) {
  for (int64_t i = 0; i < c->n; ++i)
    if (!has_missing_level(c, i)) return 0;
  return 1;
}

static void add(struct common *x, const struct column *c, const struct input_column *input) {
  int nulls = has_nulls(c);
  /* Codes, and what stands for texts that nothing reads, are float32. */
  int unread = !input->read && c->type >= TEXTS && (c->type == LEVELS || !all_missing(c));
  if (input->categories || unread) {
    x->real = 1;
    return;
  }
  if (c->type == DOUBLE || c->type >= TEXTS || (!is_float(c) && nulls)) {
    x->real = x->wide_real = 1;
  } else if (is_float(c)) {
    x->real = 1;
  } else {
    x->is_signed |= c->type >= I8 && c->type <= I64;
    x->u64 |= c->type == U64;
    if (c->type == I32 || c->type == I64 || c->type == U32 || c->type == U64) x->wide_real = 1;
  }
}

/* Whether an integer is beyond what float32 holds all of. */
static int is_large(struct value v) {
  return v.kind == HBTVM_UNSIGNED || (v.kind == HBTVM_INTEGER && (v.integer < -EXACT || v.integer > EXACT));
}

static int check_type(struct reading *r, int64_t i) {
  const struct column *c = &r->column[i];
  const struct input_column *input = &r->front->columns[i];
  if (c->type == NULLS) return fail(r, HBTVM_ARROW_TYPE, i, -1);
  if (!input->categories) {
    for (int64_t row = 0; c->type >= TEXTS && input->read && row < c->n; ++row)
      if (value_of(c, row).kind == HBTVM_TEXT) return fail(r, HBTVM_ARROW_NOT_A_NUMBER, i, row);
    return HBTVM_OK;
  }
  if (r->front->numbers_are_categories) {
    for (int64_t row = 0; row < c->n; ++row) {
      struct value v = value_of(c, row);
      if (v.kind == HBTVM_NUMBER && isinf(v.number)) return fail(r, HBTVM_ARROW_INFINITY, i, row);
    }
    return HBTVM_OK;
  }
  /* Numbers could be codes or values. */
  int levels = c->type == LEVELS || (c->type >= TEXTS && !all_missing(c));
  return levels ? HBTVM_OK : fail(r, HBTVM_ARROW_NOT_A_CATEGORY, i, -1);
}

/* A column's numbers, or codes. */
static int column_of(struct reading *r, int64_t i, int64_t *codes, double *out) {
  const struct column *c = &r->column[i];
  const struct input_column *input = &r->front->columns[i];
  if (input->categories) {
    int status = find_codes(r, i, input->categories, 0, 0, codes);
    for (int64_t row = 0; row < c->n && !status; ++row)
      out[row] = codes[row] == HBTVM_CODE_NAN ? as_number((struct value){0}) : (double)codes[row];
    return status;
  }
  int unread = !input->read && c->type >= TEXTS;
  for (int64_t row = 0; row < c->n; ++row) out[row] = as_number(unread ? (struct value){0} : value_of(c, row));
  return HBTVM_OK;
}

/* Integers rounded to float32 at once, where all columns are integers. */
static void whole_column(const struct column *c, double *out) {
  for (int64_t row = 0; row < c->n; ++row) {
    struct value v = value_of(c, row);
    out[row] = v.kind == HBTVM_UNSIGNED ? (double)(float)(uint64_t)v.integer : (double)(float)v.integer;
  }
}

int read_bare(struct reading *r, int64_t *type, void **out) {
  const struct front *f = r->front;
  struct common x = {0, 0, 0, 0, 0};
  for (int64_t i = 0; i < f->count; ++i) {
    int status = check_type(r, i);
    if (status) return status;
    add(&x, &r->column[i], &f->columns[i]);
  }
  int mixed = x.u64 && x.is_signed, whole = !x.real && !mixed, castable = x.real && !x.wide_real;
  for (int64_t i = 0; whole && i < f->count && !x.large; ++i)
    for (int64_t row = 0; row < r->n && !x.large; ++row) x.large = is_large(value_of(&r->column[i], row));
  int single = f->single || !f->f64;
  int narrow = single || ((castable || (whole && !x.large)) && f->f32);
  /* What is float32 is cast back where there are kernels for float64 alone. */
  *type = narrow && f->f32 ? HBTVM_F32 : HBTVM_F64;
  double *column = new_array(r->n, 1, sizeof *column);
  int64_t *codes = new_array(r->n, 1, sizeof *codes);
  *out = new_array(r->n, f->count, *type == HBTVM_F32 ? sizeof(float) : sizeof(double));
  int status = column && codes && *out ? HBTVM_OK : HBTVM_NO_MEMORY;
  int exact = !f->single && narrow && !castable;
  for (int64_t i = 0; i < f->count && !status; ++i) {
    if (narrow && whole && !exact)
      whole_column(&r->column[i], column);
    else
      status = column_of(r, i, codes, column);
    for (int64_t row = 0; row < r->n && !status; ++row) {
      int64_t at = row * f->count + i;
      double v = column[row];
      if (exact && !isnan(v) && (double)(float)v != v) status = fail(r, HBTVM_ARROW_INEXACT, i, row);
      if (narrow) v = (double)(float)v;
      if (f->has_missing_value && (float)v == f->missing_value) v = as_number((struct value){0});
      if (*type == HBTVM_F32)
        ((float *)*out)[at] = (float)v;
      else
        ((double *)*out)[at] = v;
    }
  }
  free(column);
  free(codes);
  return status;
}
