/* An opened model, and the state of its calls. */
#ifndef HBTVM_INTERNAL_H
#define HBTVM_INTERNAL_H

#include "executor/plan.h"
#include "executor/pool.h"

/* Maximal number of workers kept for later calls. */
#define HBTVM_IDLE 32

/* More chunks than threads, so that a preempted thread does not delay the call. */
#define HBTVM_CHUNKS_PER_THREAD 4

struct executor {
  const struct model *model;
  int64_t threads;        /* maximal threads per call */
  int refused;            /* union of the columns' refusals: enum refused */
  struct bound *bounds;   /* all kernels of all stages */
  int64_t kernels;
  struct bound_set *sets; /* of all stages, consecutively */
  int64_t *first_set;     /* of each stage */
  int64_t *first_call;    /* of each kernel, within a worker's calls */
  int64_t calls;
  int64_t *numbers; /* memory of all sets' `chosen` */
  int64_t width;    /* columns of the matrix, if there are several stages */
  int64_t block;    /* rows per block, if there are several stages */
  struct pool *pool;
  _Atomic(struct worker *) idle[HBTVM_IDLE];
};

/* The state of a call, shared by its threads. */
struct run {
  struct executor *executor;
  const struct epilogue *epilogue; /* null: raw scores */
  int64_t type;                    /* of rows */
  const char *rows;
  int64_t n, row_bytes;
  char *out;
  int64_t out_bytes; /* of a row */
  int64_t threads;
  int bare;          /* sums only, without base, divisor and input checks */
  int has_missing;   /* 1 or 0 for all rows; -1: check each block */

  const struct bound_set *set;
  struct bound *bound;
  int64_t start, stop, chunk; /* rows of the current step, and of its chunks */
  _Atomic int status;
  atomic_flag placing;
  struct place place;
};

struct worker *hbtvm_take(struct executor *executor);
void hbtvm_give(struct executor *executor, struct worker *worker);

/* Return the arguments of a call of a kernel's part; null if memory is short. */
struct call *hbtvm_bound_call(struct executor *executor, struct worker *worker, const struct bound *bound,
                              int64_t part);

/* Return the kernels of a stage for rows of a type; null if there are none. */
const struct bound_set *hbtvm_set(const struct executor *executor, int64_t stage, int64_t type);

/* Record an error of a call; of several, the first row's. */
void hbtvm_fail(struct run *run, int status, int64_t row, int64_t column);

/* Check rows whose values are not all finite; return whether the call continues. */
int hbtvm_allowed(struct run *run, int64_t first, int64_t n);

/* Convert sums of n rows to their results: base, divisor, epilogue. `sums` is float64, and overwritten. */
void hbtvm_conclude(struct run *run, double *sums, int64_t first, int64_t n);

/* Run a model of several stages. */
void hbtvm_run_stages(struct run *run);

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
