/* The rows of a model without feeds, and their type; see `hbtvm.runtime.rows.inputs.Inputs`. */
#include <math.h>

#include "arrow/internal.h"

/* float32 holds every integer up to this. */
#define EXACT (INT64_C(1) << 24)

/* The types of all columns; the rows start with their common type. */
struct common {
  int real, wide_real; /* a column of floats; of float64, or integers of 32 bits and more */
  int single, half, short_integers; /* a column of float32; of float16; of integers of 16 bits */
  int is_signed, u64;
};

static int has_missing_level(const struct column *c, int64_t row) {
  struct value v = value_of(c, row);
  return v.kind == HBTVM_NO_VALUE || (v.kind == HBTVM_NUMBER && isnan(v.number));
}

/* Values that are all missing: a column of numbers. */
static int all_missing(const struct column *c) {
  for (int64_t i = 0; i < c->n; ++i)
    if (!has_missing_level(c, i)) return 0;
  return 1;
}

static void add(struct common *x, const struct column *c, const struct codes *codes, int read) {
  int nulls = has_nulls(c);
  /* Codes, and placeholders of unused texts, are float32. */
  int unread = !read && c->type >= TEXTS && (c->type == LEVELS || !all_missing(c));
  if (codes || unread) {
    x->real = x->single = 1;
    return;
  }
  if (c->type == DOUBLE || c->type >= TEXTS || (!is_float(c) && nulls)) {
    x->real = x->wide_real = 1;
  } else if (is_float(c)) {
    x->real = 1;
    x->single |= c->type == SINGLE;
    x->half |= c->type == HALF;
  } else {
    x->is_signed |= c->type >= I8 && c->type <= I64;
    x->u64 |= c->type == U64;
    x->short_integers |= c->type == I16 || c->type == U16;
    if (c->type == I32 || c->type == I64 || c->type == U32 || c->type == U64) x->wide_real = 1;
  }
}

/* Return whether float32 does not hold all integers up to this one. */
static int is_large(struct value v) {
  return v.kind == HBTVM_UNSIGNED || (v.kind == HBTVM_INTEGER && (v.integer < -EXACT || v.integer > EXACT));
}

static int check_type(struct reading *r, int64_t i, const struct codes *codes, int read) {
  const struct column *c = &r->column[i];
  if (c->type == NULLS) return fail(r, HBTVM_ARROW_TYPE, i, -1);
  if (!codes) {
    for (int64_t row = 0; c->type >= TEXTS && read && row < c->n; ++row)
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
static int column_of(struct reading *r, int64_t i, const struct codes *codes, int read, int64_t *code, double *out) {
  const struct column *c = &r->column[i];
  if (codes) {
    int status = find_codes(r, i, codes, 0, 0, code);
    for (int64_t row = 0; row < c->n && !status; ++row)
      out[row] = code[row] == HBTVM_CODE_NAN ? as_number((struct value){0}) : (double)code[row];
    return status;
  }
  int unread = !read && c->type >= TEXTS;
  for (int64_t row = 0; row < c->n; ++row) out[row] = as_number(unread ? (struct value){0} : value_of(c, row));
  return HBTVM_OK;
}

/* Integers rounded directly to float32, if all columns are integers. */
static void whole_column(const struct column *c, double *out) {
  for (int64_t row = 0; row < c->n; ++row) {
    struct value v = value_of(c, row);
    out[row] = v.kind == HBTVM_UNSIGNED ? (double)(float)(uint64_t)v.integer : (double)(float)v.integer;
  }
}

static int contains(const struct category_list *list, int64_t column) {
  for (int64_t i = 0; i < list->count; ++i)
    if (list->columns[i] == column) return 1;
  return 0;
}

/* Match columns to lists of categories. LightGBM pairs a data frame's category columns with the training's, in
 * order. */
static int place_categories(struct reading *r, const struct codes **codes) {
  const struct front *f = r->front;
  int64_t next = 0;
  for (int64_t i = 0; i < f->count; ++i) {
    const struct column *c = &r->column[i];
    codes[i] = f->columns[i].categories;
    if (!f->lists_count) continue;
    if (c->type < TEXTS || (c->type != LEVELS && all_missing(c))) continue;
    const struct category_list *list = next < f->lists_count ? &f->lists[next++] : NULL;
    if (!list || !contains(list, i) || (c->type != LEVELS && !list->texts))
      return fail(r, HBTVM_ARROW_NOT_A_CATEGORY, i, -1);
    codes[i] = list->codes;
  }
  return next == f->lists_count ? HBTVM_OK : fail(r, HBTVM_ARROW_NOT_A_CATEGORY, -1, -1);
}

/* The rows' type, HBTVM_F32 or HBTVM_F64, and the conversion to it. */
struct rows_type {
  int64_t type;
  int narrow;  /* rounded to float32 */
  int exact;   /* a number that changes is an error */
  int at_once; /* all columns are integers, which are rounded directly */
};

static struct rows_type type_of(struct reading *r, const struct common *x) {
  const struct front *f = r->front;
  int whole = !x->real && !(x->u64 && x->is_signed), castable = x->real && !x->wide_real, large = 0;
  for (int64_t i = 0; whole && i < f->count && !large; ++i)
    for (int64_t row = 0; row < r->n && !large; ++row) large = is_large(value_of(&r->column[i], row));
  /* numpy's common type is float32. */
  int common = castable && (x->single || (x->half && x->short_integers));
  int fits = f->apart ? common : castable || (whole && !large);
  int narrow = f->single || !f->f64 || (fits && f->f32);
  int exact = !f->single && narrow && !castable;
  /* Cast float32 back if there are kernels for float64 only. */
  return (struct rows_type){narrow && f->f32 ? HBTVM_F32 : HBTVM_F64, narrow, exact, narrow && whole && !exact};
}

static int store(struct reading *r, const struct rows_type *t, int64_t i, const double *column, void *out) {
  const struct front *f = r->front;
  for (int64_t row = 0; row < r->n; ++row) {
    int64_t at = row * f->count + i;
    double x = column[row];
    if (t->exact && !isnan(x) && (double)(float)x != x) return fail(r, HBTVM_ARROW_INEXACT, i, row);
    if (t->narrow) x = (double)(float)x;
    if (f->has_missing_value && (float)x == f->missing_value) x = as_number((struct value){0});
    if (t->type == HBTVM_F32)
      ((float *)out)[at] = (float)x;
    else
      ((double *)out)[at] = x;
  }
  return HBTVM_OK;
}

static int fill(struct reading *r, const struct codes **codes, int64_t *type, void **out) {
  const struct front *f = r->front;
  struct common x = {0, 0, 0, 0, 0, 0, 0};
  int status = place_categories(r, codes);
  for (int64_t i = 0; i < f->count && !status; ++i) {
    int read = f->columns[i].read || f->lists_count;
    status = check_type(r, i, codes[i], read);
    if (!status) add(&x, &r->column[i], codes[i], read);
  }
  if (status) return status;
  struct rows_type t = type_of(r, &x);
  double *column = new_array(r->n, 1, sizeof *column);
  int64_t *code = new_array(r->n, 1, sizeof *code);
  *type = t.type;
  *out = new_array(r->n, f->count, t.type == HBTVM_F32 ? sizeof(float) : sizeof(double));
  status = column && code && *out ? HBTVM_OK : HBTVM_NO_MEMORY;
  for (int64_t i = 0; i < f->count && !status; ++i) {
    if (t.at_once)
      whole_column(&r->column[i], column);
    else
      status = column_of(r, i, codes[i], f->columns[i].read || f->lists_count, code, column);
    if (!status) status = store(r, &t, i, column, *out);
  }
  free(column);
  free(code);
  return status;
}

int read_bare(struct reading *r, int64_t *type, void **out) {
  const struct codes **codes = calloc((size_t)r->front->count + 1, sizeof *codes);
  int status = codes ? fill(r, codes, type, out) : HBTVM_NO_MEMORY;
  free(codes);
  return status;
}
