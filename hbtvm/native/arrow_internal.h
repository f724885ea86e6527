/* What the files of the front share. */
#ifndef HBTVM_ARROW_INTERNAL_H
#define HBTVM_ARROW_INTERNAL_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "arrow.h"

/* Names that other code of whoever links this does not have. */
#define open_column hbtvm_arrow_open_column
#define close_column hbtvm_arrow_close_column
#define find_columns hbtvm_arrow_find_columns
#define fail hbtvm_arrow_fail
#define is_null hbtvm_arrow_is_null
#define has_nulls hbtvm_arrow_has_nulls
#define level_of hbtvm_arrow_level_of
#define value_of hbtvm_arrow_value_of
#define as_number hbtvm_arrow_as_number
#define bits_of hbtvm_arrow_bits_of
#define double_of hbtvm_arrow_double_of
#define half_to_float hbtvm_arrow_half_to_float
#define is_integer hbtvm_arrow_is_integer
#define is_float hbtvm_arrow_is_float
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

/* Types of columns that are read. */
enum column_type {
  NULLS, BOOLS, I8, I16, I32, I64, U8, U16, U32, U64, HALF, SINGLE, DOUBLE, TEXTS, LARGE_TEXTS, TEXT_VIEWS, LEVELS
};

/* A column of a batch, checked. Its row i is entry `offset + i` of its buffers. */
struct column {
  enum column_type type;
  int64_t n, offset;
  const uint8_t *valid; /* null where there are no nulls */
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

/* A batch that is being read. */
struct reading {
  const struct front *front;
  struct arrow_place *place;
  int64_t n;
  struct column *column; /* by the model's column; those that are not read are of type NULLS */
  int64_t *given;        /* by the model's column, which of the batch it is */
  int64_t one;           /* whether the only row is read value by value */
};

int open_column(const struct ArrowSchema *schema, const struct ArrowArray *array, const struct ArrowArray *batch,
                struct column *out);
void close_column(struct column *column);
int find_columns(struct reading *r, const struct ArrowSchema *schema);
int fail(struct reading *r, int status, int64_t column, int64_t row);

int is_null(const struct column *c, int64_t row);
int has_nulls(const struct column *c);
int64_t level_of(const struct column *c, int64_t row); /* of a row that is not null */
struct value value_of(const struct column *c, int64_t row);
double as_number(struct value v); /* NaN for a null; a text is none */
uint64_t bits_of(double x);
double double_of(uint64_t bits);
float half_to_float(uint16_t half);
int is_integer(const struct column *c);
int is_float(const struct column *c);

int64_t code_of(const struct codes *codes, struct value v, enum form form);
int find_codes(struct reading *r, int64_t column, const struct codes *codes, int none, int narrowed, int64_t *out);

/* Numbers of a column that steps are computed of. */
enum series_type { NARROW = 0, WIDE = 1, MIXED = 2 };
enum series_type series_of(const struct column *c, int none, int one);
int run_feed(struct reading *r, const struct feed *feed, enum series_type type, enum series_type numbers, int none,
             double *out);
void run_number_steps(const struct feed_step *steps, int64_t count, double *x, int64_t n);
/* Returns whether the column is float32 afterwards. */
int apply_step(const struct feed_step *s, double *x, int64_t n, int narrow);

int read_texts(struct reading *r, const struct texts *t, double *out);

int read_feeds(struct reading *r, int64_t *type, void **out);
int read_bare(struct reading *r, int64_t *type, void **out);
void *new_array(int64_t n, int64_t width, size_t size);

#endif
