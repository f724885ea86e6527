/* An opened model, and what its calls share. */
#ifndef HBTVM_INTERNAL_H
#define HBTVM_INTERNAL_H

#include "plan.h"
#include "pool.h"

/* Workers that are kept for the next call; more are freed after theirs. */
#define HBTVM_IDLE 32

/* More chunks than threads, so that a thread that is held up does not hold up the call. */
#define HBTVM_CHUNKS_PER_THREAD 4

struct executor {
  const struct model *model;
  int64_t threads;        /* most that work on a call */
  int refused;            /* what some column refuses: enum refused */
  struct bound *bounds;   /* all kernels of all stages */
  int64_t kernels;
  struct bound_set *sets; /* of all stages, one stage's behind the other's */
  int64_t *first_set;     /* of each stage */
  int64_t *first_call;    /* of each kernel, within a worker's calls */
  int64_t calls;
  int64_t *numbers; /* memory of all sets' `chosen` */
  int64_t width;    /* columns of a staged model's matrix */
  int64_t block;    /* rows of a block of a staged model */
  struct pool *pool;
  _Atomic(struct worker *) idle[HBTVM_IDLE];
};

/* One call, as all threads that work on it see it. */
struct run {
  struct executor *executor;
  const struct epilogue *epilogue; /* null: raw scores */
  int64_t type;                    /* of rows */
  const char *rows;
  int64_t n, row_bytes;
  char *out;
  int64_t out_bytes; /* of a row */
  int64_t threads;
  int bare;          /* sums alone: neither base, nor divisor, nor a look at the rows */
  int has_missing;   /* 1 or 0 of all rows; -1: to be told of each block */

  const struct bound_set *set;
  struct bound *bound;
  int64_t start, stop, chunk; /* rows of the step at hand, and of its chunks */
  _Atomic int status;
  atomic_flag placing;
  struct place place;
};

struct worker *hbtvm_take(struct executor *executor);
void hbtvm_give(struct executor *executor, struct worker *worker);

/* The arguments of a call of a kernel's part; null if there is no memory. */
struct call *hbtvm_bound_call(struct executor *executor, struct worker *worker, const struct bound *bound,
                              int64_t part);

/* The kernels of a stage for rows of a type; null if there are none. */
const struct bound_set *hbtvm_set(const struct executor *executor, int64_t stage, int64_t type);

/* Keep an error of a call; of several, that of the first row. */
void hbtvm_fail(struct run *run, int status, int64_t row, int64_t column);

/* Look at rows whose values are not all finite; whether the call goes on. */
int hbtvm_allowed(struct run *run, int64_t first, int64_t n);

/* From sums of n rows to their results: base, divisor, epilogue. `sums` are float64, and overwritten. */
void hbtvm_conclude(struct run *run, double *sums, int64_t first, int64_t n);

/* Run a model of several stages. */
void hbtvm_run_stages(struct run *run);

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
