/* Feeds computed by steps from a column of values, which become numbers at the first step that needs numbers. */
#include <math.h>

#include "arrow/internal.h"

/* Rows computed at a time, so that intermediate results stay in the cache. */
#define ROWS 256

/* float64 holds every integer up to this. */
#define EXACT (INT64_C(1) << 53)

static int fits(struct value v, int none) {
  switch (v.kind) {
    case HBTVM_NO_VALUE: return !none;
    case HBTVM_NUMBER: return 1;
    case HBTVM_INTEGER: return v.integer >= -EXACT && v.integer <= EXACT;
    default: return 0;
  }
}

/* The initial type of steps: that of float columns; float64 if it holds all values; else single values. */
enum series_type series_of(const struct column *c, int none, int one) {
  if (is_float(c) && !one) return c->type == DOUBLE ? WIDE : NARROW;
  for (int64_t i = 0; i < c->n; ++i) {
    /* A null level is None. */
    int level = !one && c->type == LEVELS && !is_null(c, i);
    if (!fits(value_of(c, i), none || level)) return MIXED;
  }
  return WIDE;
}

/* Some rows of a feed. */
struct block {
  struct reading *r;
  const struct feed *feed;
  int64_t first, n;
  int mixed, narrow; /* whether `value` holds them, else whether `x` are float32 numbers */
  enum series_type numbers;
  struct value value[ROWS];
  double x[ROWS];
};

static int bad(const struct block *b, int status, int64_t row) {
  return fail(b->r, status, b->feed->column, b->first + row);
}

static struct value number_value(double x) {
  struct value v = {HBTVM_NUMBER, 0, x, NULL, 0};
  return v;
}

static void load(struct block *b, int none) {
  const struct column *c = &b->r->column[b->feed->column];
  for (int64_t i = 0; i < b->n; ++i) {
    struct value v = value_of(c, b->first + i);
    int level = !b->r->one && c->type == LEVELS && !is_null(c, b->first + i);
    if (!b->mixed)
      b->x[i] = as_number(v);
    else
      b->value[i] = v.kind == HBTVM_NO_VALUE && !none && !level ? number_value(as_number(v)) : v;
  }
}

static int to_numbers(struct block *b) {
  b->mixed = 0;
  b->narrow = b->numbers == NARROW;
  for (int64_t i = 0; i < b->n; ++i) {
    if (b->value[i].kind == HBTVM_TEXT) return bad(b, HBTVM_ARROW_NOT_A_NUMBER, i);
    double x = as_number(b->value[i]);
    b->x[i] = b->narrow ? (double)(float)x : x;
  }
  return HBTVM_OK;
}

static struct value of_constant(const struct constant *c) {
  struct value v = {(enum known_kind)c->kind, 0, 0.0, c->text, c->size};
  if (c->kind == HBTVM_NUMBER)
    v.number = double_of(c->bits);
  else
    v.integer = (int64_t)c->bits;
  return v;
}

static int same_value(struct value a, struct value b) {
  if (a.kind == HBTVM_TEXT || b.kind == HBTVM_TEXT)
    return a.kind == b.kind && a.size == b.size && (!a.size || !memcmp(a.text, b.text, (size_t)a.size));
  if (a.kind == b.kind && a.kind != HBTVM_NUMBER) return a.integer == b.integer;
  if (a.kind == HBTVM_NUMBER && b.kind == HBTVM_NUMBER) return a.number == b.number;
  if (a.kind != HBTVM_NUMBER && b.kind != HBTVM_NUMBER) return 0;
  /* An integer and a float with a canonical constant are equal only in the integer's kind. */
  struct value number = a.kind == HBTVM_NUMBER ? a : b, whole = a.kind == HBTVM_NUMBER ? b : a;
  if (whole.kind == HBTVM_INTEGER)
    return number.number >= -0x1p63 && number.number < 0x1p63 && number.number == floor(number.number) &&
           (int64_t)number.number == whole.integer;
  return number.number >= 0x1p63 && number.number < 0x1p64 && (uint64_t)number.number == (uint64_t)whole.integer;
}

static int value_lost(const struct feed_step *s, struct value v) {
  int none = v.kind == HBTVM_NO_VALUE, nan = v.kind == HBTVM_NUMBER && isnan(v.number);
  switch (s->flag) {
    case HBTVM_MISSING_NONE: return none;
    case HBTVM_MISSING_NAN: return nan;
    case HBTVM_MISSING_ANY: return none || nan;
    default: return !none && same_value(v, of_constant(&s->lost));
  }
}

static int encode(struct block *b, const struct feed_step *s) {
  for (int64_t i = 0; i < b->n; ++i) {
    struct value v = b->mixed ? b->value[i] : number_value(b->x[i]);
    int64_t code = code_of(s->codes, &v, HBTVM_FORM_VALUE);
    if (code == HBTVM_CODE_REFUSED) {
      int lost = v.kind == HBTVM_NO_VALUE || (v.kind == HBTVM_NUMBER && isnan(v.number));
      return bad(b, lost ? HBTVM_ARROW_NULL : HBTVM_ARROW_UNKNOWN_CATEGORY, i);
    }
    b->x[i] = (double)code;
  }
  if (b->mixed) b->narrow = b->numbers == NARROW;
  b->mixed = 0;
  return HBTVM_OK;
}

static int on_values(struct block *b, const struct feed_step *s) {
  if (s->kind == HBTVM_STEP_FILL) {
    for (int64_t i = 0; i < b->n; ++i)
      if (value_lost(s, b->value[i])) b->value[i] = of_constant(&s->value);
    return HBTVM_OK;
  }
  if (s->kind == HBTVM_STEP_IS_MISSING) {
    for (int64_t i = 0; i < b->n; ++i) b->x[i] = value_lost(s, b->value[i]) ? 1.0 : 0.0;
    b->mixed = 0;
    b->narrow = b->numbers == NARROW;
    return HBTVM_OK;
  }
  int status = to_numbers(b);
  if (!status) b->narrow = apply_step(s, b->x, b->n, b->narrow);
  return status;
}

static int run_step(struct block *b, const struct feed_step *s) {
  if (s->kind == HBTVM_STEP_ENCODE) return encode(b, s);
  /* A column of texts that are all missing is numeric. */
  if (!b->mixed && s->kind == HBTVM_STEP_FILL && s->value.kind == HBTVM_TEXT) {
    for (int64_t i = 0; i < b->n; ++i) b->value[i] = number_value(b->x[i]);
    b->mixed = 1;
  }
  if (b->mixed) return on_values(b, s);
  b->narrow = apply_step(s, b->x, b->n, b->narrow);
  return HBTVM_OK;
}

/* Compute a feed. numbers: the type of numbers from values. */
int run_feed(struct reading *r, const struct feed *feed, enum series_type type, enum series_type numbers, int none,
             double *out) {
  struct block b; /* filled in step by step: setting its arrays to zeros takes longer than a row */
  b.r = r;
  b.feed = feed;
  b.numbers = numbers;
  for (b.first = 0; b.first < r->n; b.first += b.n) {
    b.n = r->n - b.first < ROWS ? r->n - b.first : ROWS;
    b.mixed = type == MIXED;
    b.narrow = type == NARROW;
    load(&b, none);
    for (int64_t i = 0; feed->refuses_infinity && !b.mixed && i < b.n; ++i)
      if (isinf(b.x[i])) return bad(&b, HBTVM_ARROW_INFINITY, i);
    for (int64_t s = 0; s < feed->count; ++s) {
      int status = run_step(&b, &feed->steps[s]);
      if (status) return status;
    }
    int status = b.mixed ? to_numbers(&b) : HBTVM_OK;
    if (status) return status;
    memcpy(out + b.first, b.x, (size_t)b.n * sizeof *out);
  }
  return HBTVM_OK;
}
