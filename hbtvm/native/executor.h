/* The executor: one compiled model, described by constant data, run on any number of rows.
 *
 * Whoever runs a model fills in a `struct model` (Python from a package, an exported library from data compiled into
 * it), opens an executor on it, and calls `hbtvm_run` as often as it likes, from any thread. Everything that the
 * description points to is only read and has to outlive the executor. There is no global state.
 */
#ifndef HBTVM_EXECUTOR_H
#define HBTVM_EXECUTOR_H

#include <stdint.h>

#include "epilogue.h"

#define HBTVM_EXECUTOR_VERSION 1

/* Bytes that the start of a kernel's tables and scores is a multiple of. */
#define HBTVM_ALIGNMENT 64

/* A type of rows, of scores or of results; with `HBTVM_F32` and `HBTVM_F64` from epilogue.h. */

enum sharing { HBTVM_ALONE = 0, HBTVM_OVER_ROWS = 1, HBTVM_OVER_TREES = 2 };

/* The calling convention of TVM's kernels: `args` are `count` values of 16 bytes, see kernel.c. */
typedef int kernel_function(void *self, const void *args, int32_t count, void *result);

/* A constant argument of a kernel. */
struct table {
  const void *data;
  const int64_t *shape;
  int32_t axes;
  uint8_t code, bits; /* DLPack's: 0 integers, 1 unsigned integers, 2 floats, 6 bool */
  uint16_t splits;    /* whether the leading axis is tiles of trees, of which threads may each take some */
};

/* main(rows[n, R, F], *tables, scores): n row tiles of R rows each. */
struct kernel {
  kernel_function *function;
  void *self;
  const struct table *tables;
  int64_t count;         /* of tables */
  int64_t rows;          /* of a call that it was tuned for */
  double seconds;        /* that such a call took; negative if nobody measured */
  int64_t threads;       /* that such a call might use */
  int64_t over, grain;   /* enum sharing; fewest row tiles that are worth a hand-off (0: the executor decides) */
  int64_t row_tile;      /* R */
  int64_t groups, width; /* scores of a row: groups * width */
  int64_t by_row;        /* scores are [n, R, V], each row's side by side; else [n, G, V, R] */
  int64_t type;          /* of its scores; those that are not by row are float64 */
  int64_t takes_missing; /* whether rows may have NaN */
};

/* Kernels for rows of one type, at least one of which takes missing values. */
struct kernels {
  const struct kernel *kernel;
  int64_t count;
  int64_t type; /* of rows */
};

/* Kernels that make `outputs` columns of some columns of a matrix.
 *
 * The matrix is float64: first the rows' columns, then what each stage before this one makes. A model of one stage
 * has no matrix; its `columns` is null and its kernels read the rows as they are. All kernels of staged models take
 * missing values.
 */
struct stage {
  const struct kernels *sets; /* by type of rows, at most one each */
  int64_t count;
  const int64_t *columns;
  int64_t read;    /* how many columns */
  int64_t outputs; /* scores of a row */
};

enum refused { HBTVM_REFUSES_NAN = 1, HBTVM_REFUSES_INFINITY = 2 };

/* What tells whether rows hold values that are refused. */
enum telling { HBTVM_BY_ROWS = 0, HBTVM_BY_SCORES = 1, HBTVM_BY_COLUMN = 2 };

struct model {
  int64_t version; /* HBTVM_EXECUTOR_VERSION */
  int64_t columns; /* of rows */
  const struct stage *stages;
  int64_t count;          /* of stages; the last one makes the scores */
  double divisor;         /* raw scores are scores / divisor + base */
  const double *base;     /* for each score; null for zeros */
  const uint8_t *refuses; /* for each column: enum refused; null where nothing is refused */
  int64_t telling;        /* enum telling; scores tell only of the whole row */
  int64_t telling_column; /* the score that is NaN if some value is not finite, else 0 */
};

/* What a call returns. */
enum status {
  HBTVM_OK = 0,
  HBTVM_NO_MEMORY = 1,
  HBTVM_REFUSED_NAN = 2,      /* `place` tells where */
  HBTVM_REFUSED_INFINITY = 3, /* `place` tells where */
  HBTVM_NO_KERNEL = 4,        /* for rows of this type */
  HBTVM_KERNEL_FAILED = 5,
  HBTVM_NO_LABEL = 6, /* a row has none of the labels; `place` tells the row */
  HBTVM_BAD_ARGUMENT = 7
};

struct place {
  int64_t row, column;
};

struct executor;

/* Open a model. `threads` is the most that work on a call, the caller included; 0 for as many as it was tuned for,
 * but no more than the CPUs that the process may use. Null where there is no memory. Threads start with the first call
 * that needs them, and anew in a forked child. */
struct executor *hbtvm_open(const struct model *model, int64_t threads);

/* End its threads and free it. No call may be running. Null is allowed. */
void hbtvm_close(struct executor *executor);

/* Call each kernel on no rows, so that it compares its arguments with what it was compiled for. Returns the number of
 * the first one that refuses them (in the order of the description), -1 if none does, -2 if there is no memory. */
int64_t hbtvm_check(struct executor *executor);

struct plan_step;

/* The plan of a call of n rows of a type, of the last stage: fills in at most two steps (plan.h), returns how many. */
int64_t hbtvm_steps(struct executor *executor, int64_t type, int64_t n, struct plan_step *steps);

/* Compute one output of rows.
 *
 * `rows`: n x columns, row by row, of `type`, aligned to its elements. `out`: n times what the epilogue makes of a row
 * (`struct epilogue`), any alignment of at least its elements; a null epilogue stands for the raw scores, float64,
 * n x outputs. `threads`: the most that work on this call; 0 for the executor's own number, which is also the most.
 * `place`: where a refused value or a row without a label is; may be null. On an error `out` holds anything.
 */
int hbtvm_run(struct executor *executor, const struct epilogue *epilogue, int64_t type, const void *rows, int64_t n,
              void *out, int64_t threads, struct place *place);

/* Set the memory for scores to NaN before each call of a kernel, or stop it: for kernels that are being checked. */
void hbtvm_poison(struct executor *executor, int64_t on);

/* The sums alone, as kernels leave them, float64: neither base, nor divisor, nor a look at the rows. */
int hbtvm_sums(struct executor *executor, int64_t type, const void *rows, int64_t n, double *out, int64_t threads);

#endif
