/* The part of exported C libraries beyond the executor: rows of any type, results by method, errors with their place.
 *
 * `hbtvm export` generates the public functions, each of which calls one of these with constant data.
 */
#ifndef HBTVM_EXPORTED_H
#define HBTVM_EXPORTED_H

#include "executor/executor.h"

/* Results of public functions. The generated header has the same values under other names. */
enum exported_code {
  EXPORTED_OK = 0,
  EXPORTED_ARGUMENT = 1,
  EXPORTED_MEMORY = 2,
  EXPORTED_NAN = 3,
  EXPORTED_INFINITY = 4,
  EXPORTED_NO_LABEL = 5,
  EXPORTED_NOT_FLOAT32 = 6,
  EXPORTED_KERNEL = 7,
  EXPORTED_BATCH = 8, /* from here on as `enum arrow_status` of arrow.h, up to HBTVM_ARROW_NULL */
  EXPORTED_CODES = 20
};

/* The generated header has the same structure under another name. */
struct exported_error {
  int code;
  int64_t row, column; /* -1 if none */
};

/* Conversion of rows of one type to the kernels' type. */
struct conversion {
  int64_t through; /* the type that values are rounded to */
  int64_t to;      /* the type that kernels read */
  int64_t exact;   /* whether values that the first type does not hold are refused */
};

struct row_input {
  int64_t columns;     /* of the caller's rows */
  const int64_t *read; /* for each column of the model, its index among the caller's columns; null: the same index */
  const float *missing; /* the value that counts as NaN after rounding to float32; null without one */
  struct conversion conversions[2]; /* by the type of the caller's rows */
};

/* At most three models: one predicts, the others are `transform` and `contributions`. */
#define EXPORTED_MODELS 3

struct exported {
  int64_t count;
  const struct model *models[EXPORTED_MODELS];
  struct row_input inputs[EXPORTED_MODELS];
};

/* An output of a model, with epilogues by the type of the caller's rows. */
struct method {
  int64_t model;
  const struct epilogue *epilogues[2];
};

struct opened {
  const struct exported *exported;
  struct executor *executors[EXPORTED_MODELS];
};

/* Return 0 if memory is short; nothing needs closing then. */
int exported_open(struct opened *opened, const struct exported *exported, int threads);
void exported_close(struct opened *opened);

/* Return an enum exported_code. `opened` and `error` may be null. */
int exported_run(const struct opened *opened, const struct method *method, int64_t type, const void *rows, int64_t n,
                 void *out, int threads, struct exported_error *error);

/* Fill in an error and return its code. `error` may be null. */
int exported_fail(struct exported_error *error, int code, int64_t row, int64_t column);

/* As above for an enum status; `read` has the caller's column for each column of the model, or is null. */
int exported_fail_as(struct exported_error *error, int status, const struct place *place, const int64_t *read);

struct front;
struct ArrowSchema;
struct ArrowArray;

/* As `exported_run`, for an Arrow batch. `out` has room for the results of all its rows. */
int exported_run_arrow(const struct opened *opened, const struct method *method, const struct front *front,
                       const int64_t *read, const struct ArrowSchema *schema, const struct ArrowArray *batch, void *out,
                       int threads, struct exported_error *error);

/* Return the message of an enum exported_code. */
const char *exported_message(int code);

#endif
