/* Conversion of texts to weighted terms, as scikit-learn's vectorizers do: sparse rows, dense rows, or weighted sums.
 *
 * A text is normalised (lower case, accents) and cut into terms. Each term becomes a column, by a table of the
 * vocabulary or by its hash. The terms of a text are counted in the order of their columns, changed by stages (`enum
 * stage_kind`), and then written, or summed with weights, so that a linear model needs no sparse matrix.
 *
 * Inputs are only read, and may contain any bytes. `hbtvm.graph.columns.text.Vectorize.validate` checks the tables beforehand.
 * There is no global state: several threads may use the same `struct text`.
 */
#include <math.h>

#include "text/analyzers.h"
#include "text/python.h"

static inline uint64_t offset(const struct input *in, int64_t i) {
  return in->wide ? ((const uint64_t *)in->offsets)[i] : ((const uint32_t *)in->offsets)[i];
}

/* Add the terms of a row unchanged. */
static int terms(const struct text *t, struct work *w, const struct input *in, int64_t row) {
  int64_t start = in->rows[row], end = in->rows[row + 1];
  if ((end - start) >> 31) return FAILED;
  w->values = in->values ? in->values + start : NULL;
  for (int64_t i = start; i < end; ++i) {
    uint64_t first = offset(in, i), stop = offset(in, i + 1);
    struct beginning from = BEGINNING;
    if (term(t, w, &from, in->bytes + first, (size_t)(stop - first), (uint32_t)(i - start))) return FAILED;
  }
  return DONE;
}

static void divide(struct work *w, double by) {
  if (by == 0.0) return;
  for (size_t i = 0; i < w->entries; ++i) w->entry[i].value /= by;
}

static void run(const struct stage *stage, struct work *w) {
  struct entry *e = w->entry;
  size_t n = w->entries, kept = 0;
  double sum = 0.0;
  switch (stage->kind) {
    case BINARY:
      for (size_t i = 0; i < n; ++i) e[i].value = 1.0;
      break;
    case LOGARITHM:
      for (size_t i = 0; i < n; ++i) e[i].value = e[i].value == 1.0 ? 1.0 : log(e[i].value) + 1.0;
      break;
    case SCALE:
      for (size_t i = 0; i < n; ++i) e[i].value *= stage->scale[e[i].column];
      break;
    case NORM_L1:
      for (size_t i = 0; i < n; ++i) sum += fabs(e[i].value);
      divide(w, sum);
      break;
    case NORM_L2:
      for (size_t i = 0; i < n; ++i) sum += e[i].value * e[i].value;
      divide(w, sqrt(sum));
      break;
    case NORM_MAX:
      for (size_t i = 0; i < n; ++i) sum = fabs(e[i].value) > sum ? fabs(e[i].value) : sum;
      divide(w, sum);
      break;
    case SELECT:
      for (size_t i = 0; i < n; ++i)
        if (stage->place[e[i].column] != NO_COLUMN) {
          e[kept].value = e[i].value;
          e[kept++].column = stage->place[e[i].column];
        }
      w->entries = kept;
      break;
  }
}

/* Compute the entries of the terms, after all stages, in `w->entry`. */
static int finish(const struct text *t, struct work *w) {
  if (look_up(t, w) || count(t, w)) return FAILED;
  for (int64_t i = 0; i < t->stages; ++i) run(&t->stage[i], w);
  return DONE;
}

static inline void begin(struct work *w) { w->count = w->entries = w->queued = 0; }

/* Compute the entries of a row in `w->entry`. */
static int row_of(const struct text *t, struct work *w, const struct input *in, int64_t row) {
  int done = DONE;
  begin(w);
  if (t->analyzer == TERMS) {
    done = terms(t, w, in, row);
  } else {
    uint64_t first = offset(in, row), end = offset(in, row + 1);
    size_t size = 0;
    done = normalize(t, w, in->bytes + first, end > first ? (size_t)(end - first) : 0, &size);
    if (done) return done;
    if (t->analyzer == WORDS)
      done = words(t, w, size);
    else
      done = t->analyzer == CHARACTERS ? characters(t, w, size) : characters_in_words(t, w, size);
  }
  return done ? FAILED : finish(t, w);
}

/* As `row_of`, for one of Python's objects; may return OTHER. */
static int row_of_object(const struct text *t, struct work *w, const struct python *p, const struct features *f,
                         const struct objects *rows, int64_t row) {
  begin(w);
  int done = features_of(t, w, p, f, rows, row);
  return done ? done : finish(t, w);
}

static void sum_up(const struct text *t, const struct work *w, double *out) {
  if (!t->weight) {
    memset(out, 0, (size_t)t->width * sizeof *out);
    for (size_t i = 0; i < w->entries; ++i) out[w->entry[i].column] = w->entry[i].value;
    return;
  }
  size_t outputs = (size_t)t->outputs;
  if (outputs == 1) {
    double total = 0.0;
    for (size_t i = 0; i < w->entries; ++i) total += w->entry[i].value * t->weight[w->entry[i].column];
    *out = total;
    return;
  }
  for (size_t o = 0; o < outputs; ++o) out[o] = 0.0;
  for (size_t i = 0; i < w->entries; ++i) {
    const double *weight = t->weight + (size_t)w->entry[i].column * outputs;
    double value = w->entry[i].value;
    for (size_t o = 0; o < outputs; ++o) out[o] += value * weight[o];
  }
}

/* Increment when structures or function arguments change. */
int64_t hbtvm_text_version(void) { return 2; }

/* Compute weighted sums, or all values, of rows `first` to `last`.
 *
 * out: shape (last - first, outputs or width). context: one byte for each row, set to 1 if Python must convert the row
 * to lower case first. Returns the number of such rows, or FAILED if memory is short.
 */
int64_t hbtvm_text_sums(const struct text *t, const struct input *in, int64_t first, int64_t last, double *out,
                        uint8_t *context) {
  struct work w = {0};
  int64_t waiting = 0;
  size_t size = (size_t)(t->weight ? t->outputs : t->width);
  for (int64_t i = first; i < last; ++i) {
    int done = row_of(t, &w, in, i);
    if (done == FAILED) {
      drop(&w);
      return FAILED;
    }
    waiting += context[i - first] = done == NEEDS_CONTEXT;
    if (done == NEEDS_CONTEXT) w.entries = 0;
    sum_up(t, &w, out + (size_t)(i - first) * size);
  }
  drop(&w);
  return waiting;
}

/* As `hbtvm_text_sums`, for one text. */
int64_t hbtvm_text_one(const struct text *t, const uint8_t *bytes, int64_t size, double *out) {
  int64_t offsets[2] = {0, size};
  struct input in = {bytes, offsets, 1, NULL, NULL};
  uint8_t context = 0;
  return hbtvm_text_sums(t, &in, 0, 1, out, &context);
}

static int by_column(const void *a, const void *b) {
  int32_t x = ((const struct entry *)a)->column, y = ((const struct entry *)b)->column;
  return (x > y) - (x < y);
}

/* Write a row's entries in the order of their columns. */
static void write(struct work *w, int32_t *columns, void *values, int64_t type) {
  size_t n = w->entries;
  const struct entry *e = w->entry;
  /* They are sorted, unless columns were selected in another order. */
  int ascending = 1;
  for (size_t i = 1; i < n; ++i) ascending &= e[i - 1].column < e[i].column;
  if (!ascending) qsort(w->entry, n, sizeof *w->entry, by_column);
  for (size_t i = 0; i < n; ++i) columns[i] = e[i].column;
  if (type == FLOAT64)
    for (size_t i = 0; i < n; ++i) ((double *)values)[i] = e[i].value;
  else if (type == FLOAT32)
    for (size_t i = 0; i < n; ++i) ((float *)values)[i] = (float)e[i].value;
  else
    for (size_t i = 0; i < n; ++i) ((int64_t *)values)[i] = (int64_t)e[i].value;
}

/* Compute sparse rows (CSR) `first` to `last`, in the order of their columns.
 *
 * type: of the values (`enum value_type`). columns, values: room for `space` entries. ends: for each row, the number of
 * entries up to its end. context: as for `hbtvm_text_sums`. needed: the number of entries of the first row that did not
 * fit, 0 if all did. Returns the number of complete rows, or FAILED if memory is short.
 */
int64_t hbtvm_text_rows(const struct text *t, const struct input *in, int64_t first, int64_t last, int64_t type,
                        int64_t space, int32_t *columns, void *values, int64_t *ends, uint8_t *context,
                        int64_t *needed) {
  struct work w = {0};
  int64_t used = 0, size = type == FLOAT32 ? 4 : 8;
  *needed = 0;
  for (int64_t i = first; i < last; ++i) {
    int done = row_of(t, &w, in, i);
    if (done == FAILED) {
      drop(&w);
      return FAILED;
    }
    context[i - first] = done == NEEDS_CONTEXT;
    if (done == NEEDS_CONTEXT) w.entries = 0;
    if ((int64_t)w.entries > space - used) {
      *needed = (int64_t)w.entries;
      drop(&w);
      return i - first;
    }
    write(&w, columns + used, (uint8_t *)values + used * size, type);
    used += (int64_t)w.entries;
    ends[i - first] = used;
  }
  drop(&w);
  return last - first;
}

/* As `hbtvm_text_rows`, for one text. Returns its number of entries, which are written if they fit; FAILED if memory is
 * short, or -2 if Python must convert it to lower case first. */
int64_t hbtvm_text_row(const struct text *t, const uint8_t *bytes, int64_t size, int64_t type, int64_t space,
                       int32_t *columns, void *values) {
  int64_t offsets[2] = {0, size};
  struct input in = {bytes, offsets, 1, NULL, NULL};
  struct work w = {0};
  int done = row_of(t, &w, &in, 0);
  int64_t entries = done == DONE ? (int64_t)w.entries : done == FAILED ? FAILED : -2;
  if (entries > 0 && entries <= space) write(&w, columns, values, type);
  drop(&w);
  return entries;
}

/* As `hbtvm_text_rows`, for features of Python's objects, from row `first` on; `ends` counts entries from there.
 * Returns OTHER if Python must read them. */
int64_t hbtvm_text_object_rows(const struct text *t, const struct python *p, const struct features *f,
                               const struct objects *rows, int64_t first, int64_t last, int64_t type, int64_t space,
                               int32_t *columns, void *values, int64_t *ends, int64_t *needed) {
  struct work w = {0};
  int64_t used = 0, size = type == FLOAT32 ? 4 : 8, i = first;
  int done = is_as_long(p, rows) ? DONE : OTHER;
  *needed = 0;
  for (; i < last && !done; ++i) {
    done = row_of_object(t, &w, p, f, rows, i);
    if (done) break;
    if ((int64_t)w.entries > space - used) {
      *needed = (int64_t)w.entries;
      break;
    }
    write(&w, columns + used, (uint8_t *)values + used * size, type);
    used += (int64_t)w.entries;
    ends[i - first] = used;
  }
  drop(&w);
  return done ? done : i - first;
}

/* As `hbtvm_text_sums`, for features of Python's objects; DONE, FAILED or OTHER. */
int64_t hbtvm_text_object_sums(const struct text *t, const struct python *p, const struct features *f,
                               const struct objects *rows, int64_t first, int64_t last, double *out) {
  struct work w = {0};
  size_t size = (size_t)(t->weight ? t->outputs : t->width);
  int done = is_as_long(p, rows) ? DONE : OTHER;
  for (int64_t i = first; i < last && !done; ++i) {
    done = row_of_object(t, &w, p, f, rows, i);
    if (!done) sum_up(t, &w, out + (size_t)(i - first) * size);
  }
  drop(&w);
  return done;
}

/* Fill a hash table of 2^bits slots with terms: term i is pool[starts[i]:starts[i + 1]], and belongs to column i, or
 * is a stop word from `columns` on. The table is empty at first and larger than the number of terms. A duplicate
 * term keeps its column, but stop words win: they never count as single terms. `pool` has PADDING bytes after the
 * last term. */
void hbtvm_text_fill(struct slot *slots, int64_t bits, const uint8_t *pool, const uint32_t *starts, int64_t terms,
                     int64_t columns) {
  uint64_t mask = (UINT64_C(1) << bits) - 1;
  for (int64_t i = 0; i < terms; ++i) {
    const uint8_t *s = pool + starts[i];
    uint32_t n = starts[i + 1] - starts[i];
    struct prefix from = PREFIX;
    struct key key = key_of(&from, s, n);
    uint64_t at = slot_of(key, bits);
    while (slots[at].column != NO_COLUMN && !is_term(&slots[at], key, pool, s, n)) at = (at + 1) & mask;
    if (slots[at].column == NO_COLUMN)
      slots[at] = (struct slot){key, i < columns ? (int32_t)i : STOP_WORD, starts[i]};
    else if (i >= columns)
      slots[at].column = STOP_WORD;
  }
}
