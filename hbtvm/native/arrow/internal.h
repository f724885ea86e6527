/* Declarations shared by the front's files. */
#ifndef HBTVM_ARROW_INTERNAL_H
#define HBTVM_ARROW_INTERNAL_H

#include <stddef.h>
#include <stdlib.h>

#include "arrow/values.h"

/* Prefixed names, which do not clash with other code in the same program. */
#define open_column hbtvm_arrow_open_column
#define close_column hbtvm_arrow_close_column
#define find_columns hbtvm_arrow_find_columns
#define fail hbtvm_arrow_fail
#define code_of hbtvm_arrow_code_of
#define find_codes hbtvm_arrow_find_codes
#define series_of hbtvm_arrow_series_of
#define run_feed hbtvm_arrow_run_feed
#define run_number_steps hbtvm_arrow_run_number_steps
#define apply_step hbtvm_arrow_apply_step
#define read_texts hbtvm_arrow_read_texts
#define read_feeds hbtvm_arrow_read_feeds
#define read_bare hbtvm_arrow_read_bare
#define new_array hbtvm_arrow_new_array

/* A batch in progress. */
struct reading {
  const struct front *front;
  struct arrow_place *place;
  int64_t n;
  struct column *column; /* by the model's column; unread columns have type NULLS */
  int64_t *given;        /* by the model's column: its index in the batch */
  int64_t one;           /* whether a single row is read value by value */
};

int open_column(const struct ArrowSchema *schema, const struct ArrowArray *array, const struct ArrowArray *batch,
                struct column *out);
void close_column(struct column *column);
int find_columns(struct reading *r, const struct ArrowSchema *schema);
int fail(struct reading *r, int status, int64_t column, int64_t row);

int64_t code_of(const struct codes *codes, const struct value *v, enum form form);
int find_codes(struct reading *r, int64_t column, const struct codes *codes, int none, int narrowed, int64_t *out);

/* Numbers of a column for steps. */
enum series_type { NARROW = 0, WIDE = 1, MIXED = 2 };
enum series_type series_of(const struct column *c, int none, int one);
int run_feed(struct reading *r, const struct feed *feed, enum series_type type, enum series_type numbers, int none,
             double *out);
void run_number_steps(const struct feed_step *steps, int64_t count, double *x, int64_t n);
/* Return whether the column is float32 afterwards. */
int apply_step(const struct feed_step *s, double *x, int64_t n, int narrow);

int read_texts(struct reading *r, const struct texts *t, double *out);

int read_feeds(struct reading *r, int64_t *type, void **out);
int read_bare(struct reading *r, int64_t *type, void **out);
void *new_array(int64_t n, int64_t width, size_t size);

#endif
