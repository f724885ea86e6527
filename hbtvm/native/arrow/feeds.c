/* The matrix of a pipeline's feeds, and its type; see `hbtvm.runtime.feeds.reader.FeedReader`. */
#include <math.h>

#include "arrow/internal.h"

/* The types of the numeric columns of a matrix. */
struct kinds {
  int count, half, single, other; /* other: what float32 does not hold all of */
  int short_integers;             /* of 16 bits */
};

static void add_kind(struct kinds *k, enum column_type type) {
  ++k->count;
  k->half |= type == HALF;
  k->single |= type == SINGLE;
  k->short_integers |= type == I16 || type == U16;
  k->other |= type == DOUBLE || type == I32 || type == U32 || type == I64 || type == U64;
}

static int64_t matrix_type(const struct front *f, const struct kinds *k) {
  if (f->single || !f->f64) return HBTVM_F32;
  if (!f->f32) return HBTVM_F64;
  if (!k->count) return f->only_codes ? HBTVM_F32 : HBTVM_F64;
  if (k->other) return HBTVM_F64;
  /* numpy's common type of these: float32? */
  int common = k->single || (k->half && k->short_integers);
  return f->apart && !common ? HBTVM_F64 : HBTVM_F32;
}

static int none_of(const struct reading *r, int64_t column) { return r->front->columns[column].none != 0; }

/* Return whether a single row is read value by value: not if a number has a narrow type. */
static int reads_one(const struct reading *r) {
  if (r->n != 1 || r->front->naming == HBTVM_ONLY_COLUMN) return 0;
  for (int64_t i = 0; i < r->front->count; ++i) {
    const struct column *c = &r->column[i];
    if (!r->front->columns[i].read || is_null(c, 0)) continue;
    if (c->type == HALF || c->type == SINGLE) return 0;
    int wide = c->type == DOUBLE || c->type == VALUES || (c->type == LEVELS && (c->index == I64 || c->index == U64));
    if (!wide && value_of(c, 0).kind == HBTVM_NUMBER) return 0;
  }
  return 1;
}

/* Copy columns of numbers. narrow: integers are rounded directly to float32. */
static int numbers(struct reading *r, int64_t column, int narrow, double *out) {
  const struct column *c = &r->column[column];
  if (c->n && c->type == DOUBLE && !c->valid && !c->batch_valid) {
    memcpy(out, c->data + 8 * c->offset, (size_t)c->n * sizeof *out);
    return HBTVM_OK;
  }
  for (int64_t i = 0; i < c->n; ++i) {
    struct value v = value_of(c, i);
    if (v.kind == HBTVM_TEXT) return fail(r, HBTVM_ARROW_NOT_A_NUMBER, column, i);
    if (narrow && v.kind == HBTVM_INTEGER)
      out[i] = (double)(float)v.integer;
    else if (narrow && v.kind == HBTVM_UNSIGNED)
      out[i] = (double)(float)(uint64_t)v.integer;
    else
      out[i] = as_number(v);
  }
  return HBTVM_OK;
}

/* A matrix under construction: float32 or float64 numbers, rounded to float32 first if `rounds`. */
struct matrix {
  struct reading *r;
  void *values;
  int64_t type, width;
  int rounds, exact; /* exact: what float32 does not hold is an error */
};

static int store(const struct matrix *m, int64_t j, int64_t column, const double *x) {
  for (int64_t i = 0; i < m->r->n; ++i) {
    int64_t at = i * m->width + j;
    if (m->exact && !isnan(x[i]) && (double)(float)x[i] != x[i])
      return fail(m->r, HBTVM_ARROW_INEXACT, column, i);
    if (m->type == HBTVM_F32)
      ((float *)m->values)[at] = (float)x[i];
    else
      ((double *)m->values)[at] = m->rounds ? (double)(float)x[i] : x[i];
  }
  return HBTVM_OK;
}

static int texts(struct matrix *m, const struct texts *t, int64_t which, double *column) {
  const struct front *f = m->r->front;
  double *made = new_array(m->r->n, t->width, sizeof *made);
  if (!made) return HBTVM_NO_MEMORY;
  int status = read_texts(m->r, t, made);
  for (int64_t j = 0; j < f->width && !status; ++j) {
    const struct feed *feed = &f->feeds[j];
    if (feed->kind != HBTVM_FEED_TEXT || feed->text != which) continue;
    for (int64_t i = 0; i < m->r->n; ++i) column[i] = made[i * t->width + feed->output];
    run_number_steps(feed->steps, feed->count, column, m->r->n);
    status = store(m, j, t->column, column);
  }
  free(made);
  return status;
}

static int fill(struct matrix *m, const enum series_type *series, enum series_type values, double *column,
                int64_t *codes) {
  struct reading *r = m->r;
  const struct front *f = r->front;
  int narrow = m->type == HBTVM_F32 && !f->single && !m->exact, status = HBTVM_OK;
  for (int64_t j = 0; j < f->width && !status; ++j) {
    const struct feed *feed = &f->feeds[j];
    int none = feed->kind == HBTVM_FEED_TEXT || none_of(r, feed->column);
    if (feed->kind == HBTVM_FEED_NUMBER) {
      status = numbers(r, feed->column, narrow, column);
    } else if (feed->kind == HBTVM_FEED_STEPS) {
      status = run_feed(r, feed, series[feed->column], values, none, column);
    } else if (feed->kind == HBTVM_FEED_CODE) {
      status = find_codes(r, feed->column, feed->codes, none, !r->one, codes);
      for (int64_t i = 0; i < r->n && !status; ++i) column[i] = (double)codes[i];
    } else {
      continue;
    }
    if (!status) status = store(m, j, feed->column, column);
  }
  for (int64_t t = 0; t < f->texts_count && !status; ++t) status = texts(m, &f->texts[t], t, column);
  return status;
}

/* Inputs of the choice of the matrix's type. */
static struct kinds kinds_of(const struct reading *r, const enum series_type *series) {
  const struct front *f = r->front;
  struct kinds k = {0, 0, 0, 0, 0};
  if (f->texts_count || (r->one && !f->only_codes)) add_kind(&k, DOUBLE);
  for (int64_t j = 0; j < f->width && !r->one; ++j) {
    const struct column *c = &r->column[f->feeds[j].column];
    if (f->feeds[j].kind == HBTVM_FEED_STEPS)
      add_kind(&k, series[f->feeds[j].column] == NARROW ? SINGLE : DOUBLE);
    else if (f->feeds[j].kind == HBTVM_FEED_NUMBER)
      add_kind(&k, is_float(c) || (is_integer(c) && !has_nulls(c)) ? c->type : DOUBLE);
  }
  return k;
}

int read_feeds(struct reading *r, int64_t *type, void **out) {
  const struct front *f = r->front;
  r->one = reads_one(r);
  enum series_type *series = new_array(f->count, 1, sizeof *series);
  double *column = new_array(r->n, 1, sizeof *column);
  int64_t *codes = new_array(r->n, 1, sizeof *codes);
  int status = series && column && codes ? HBTVM_OK : HBTVM_NO_MEMORY;
  if (!status) {
    for (int64_t i = 0; i < f->count; ++i) series[i] = WIDE;
    for (int64_t j = 0; j < f->width; ++j)
      if (f->feeds[j].kind == HBTVM_FEED_STEPS) {
        int64_t i = f->feeds[j].column;
        series[i] = series_of(&r->column[i], none_of(r, i), (int)r->one);
      }
    struct kinds k = kinds_of(r, series);
    int64_t target = matrix_type(f, &k);
    struct matrix m = {r, NULL, target == HBTVM_F32 && f->f32 ? HBTVM_F32 : HBTVM_F64, f->width, 0, 0};
    m.rounds = target == HBTVM_F32;
    /* All numbers are float64 and are cast only at the end. */
    m.exact = target == HBTVM_F32 && !f->single && !f->only_codes && (r->one || f->whole_text);
    *type = m.type;
    *out = m.values = new_array(r->n, f->width, m.type == HBTVM_F32 ? sizeof(float) : sizeof(double));
    enum series_type values = r->one || target == HBTVM_F64 || !(f->single || f->f64) ? WIDE : NARROW;
    status = m.values ? fill(&m, series, values, column, codes) : HBTVM_NO_MEMORY;
  }
  free(series);
  free(column);
  free(codes);
  return status;
}
