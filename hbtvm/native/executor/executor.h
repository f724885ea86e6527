/* The executor: runs a compiled model, described by constant data, on any number of rows.
 *
 * The caller fills in a `struct model` (Python from a package, an exported library from compiled data), opens an
 * executor, and calls `hbtvm_run` from any thread, any number of times. The description is only read, and must outlive
 * the executor. There is no global state.
 */
#ifndef HBTVM_EXECUTOR_H
#define HBTVM_EXECUTOR_H

#include <stdint.h>

#include "epilogue/epilogue.h"

#define HBTVM_EXECUTOR_VERSION 1

/* Alignment in bytes of a kernel's tables and scores. */
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
  uint16_t splits;    /* whether the leading axis is tiles of trees, which threads may share */
};

/* main(rows[n, R, F], *tables, scores): n row tiles of R rows each. */
struct kernel {
  kernel_function *function;
  void *self;
  const struct table *tables;
  int64_t count;         /* of tables */
  int64_t rows;          /* rows per call of the tuning */
  double seconds;        /* seconds of such a call; negative if not measured */
  int64_t threads;       /* threads of such a call */
  int64_t over, grain;   /* enum sharing; minimal row tiles per chunk (0: the executor decides) */
  int64_t row_tile;      /* R */
  int64_t groups, width; /* scores per row: groups * width */
  int64_t by_row;        /* scores are [n, R, V], consecutive for each row; else [n, G, V, R] */
  int64_t type;          /* of its scores; float64 unless by row */
  int64_t takes_missing; /* whether rows may have NaN */
};

/* Kernels for rows of one type, at least one of which accepts missing values. */
struct kernels {
  const struct kernel *kernel;
  int64_t count;
  int64_t type; /* of rows */
};

/* Kernels that compute `outputs` columns from some columns of a matrix.
 *
 * The matrix is float64: first the rows' columns, then the outputs of earlier stages. A model with one stage has no
 * matrix: `columns` is null, and its kernels read the rows themselves. All kernels of models with several stages accept
 * missing values.
 */
struct stage {
  const struct kernels *sets; /* by type of rows, at most one for each type */
  int64_t count;
  const int64_t *columns;
  int64_t read;    /* number of columns */
  int64_t outputs; /* scores per row */
};

enum refused { HBTVM_REFUSES_NAN = 1, HBTVM_REFUSES_INFINITY = 2 };

/* The source of checks for refused values. */
enum telling { HBTVM_BY_ROWS = 0, HBTVM_BY_SCORES = 1, HBTVM_BY_COLUMN = 2 };

struct model {
  int64_t version; /* HBTVM_EXECUTOR_VERSION */
  int64_t columns; /* of rows */
  const struct stage *stages;
  int64_t count;          /* of stages; the last computes the scores */
  double divisor;         /* raw scores are scores / divisor + base */
  const double *base;     /* for each score; null for zeros */
  const uint8_t *refuses; /* for each column: enum refused; null if nothing is refused */
  int64_t telling;        /* enum telling; scores only show whether a whole row is finite */
  int64_t telling_column; /* the score that is NaN if some value is not finite, else 0 */
};

/* Results of calls. */
enum status {
  HBTVM_OK = 0,
  HBTVM_NO_MEMORY = 1,
  HBTVM_REFUSED_NAN = 2,      /* `place` tells where */
  HBTVM_REFUSED_INFINITY = 3, /* `place` tells where */
  HBTVM_NO_KERNEL = 4,        /* for rows of this type */
  HBTVM_KERNEL_FAILED = 5,
  HBTVM_NO_LABEL = 6, /* a row has no valid label; `place` has the row */
  HBTVM_BAD_ARGUMENT = 7
};

struct place {
  int64_t row, column;
};

struct executor;

/* Open a model. `threads` is the maximal number of threads per call, the caller included; 0 for the number of the
 * tuning, limited to the process's CPUs. Null if memory is short. Threads start with the first call that needs them,
 * and again in a forked child. */
struct executor *hbtvm_open(const struct model *model, int64_t threads);

/* Stop the threads and free the executor. No call may be running. Null is allowed. */
void hbtvm_close(struct executor *executor);

/* Call each kernel without rows, so that it checks its arguments. Returns the index of the first kernel that refuses
 * them (in the order of the description), -1 if none does, -2 if memory is short. */
int64_t hbtvm_check(struct executor *executor);

struct plan_step;

/* Compute the last stage's plan for n rows of a type: fill in at most two steps (plan.h), and return their number. */
int64_t hbtvm_steps(struct executor *executor, int64_t type, int64_t n, struct plan_step *steps);

/* Compute an output of rows.
 *
 * `rows`: n x columns, row-major, of `type`, aligned to its elements. `out`: n times the epilogue's row (`struct
 * epilogue`), aligned at least to its elements; a null epilogue stands for the raw scores, float64, n x outputs.
 * `threads`: the maximal number of threads for this call, up to the executor's; 0 for the executor's. `place`: the
 * place of a refused value or of a row without a label; may be null. On an error, the contents of `out` are undefined.
 */
int hbtvm_run(struct executor *executor, const struct epilogue *epilogue, int64_t type, const void *rows, int64_t n,
              void *out, int64_t threads, struct place *place);

/* Start or stop setting score memory to NaN before each call of a kernel, to check kernels. */
void hbtvm_poison(struct executor *executor, int64_t on);

/* Compute the kernels' sums only, as float64: without base, divisor and input checks. */
int hbtvm_sums(struct executor *executor, int64_t type, const void *rows, int64_t n, double *out, int64_t threads);

#endif
