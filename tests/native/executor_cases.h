/* Models of fake kernels, their rows, and what they compute. */
#ifndef EXECUTOR_CASES_H
#define EXECUTOR_CASES_H

#include "fake_kernel.h"

/* A model of one stage, of one or two kernels for rows of one type. Points to itself. */
struct whole {
  struct fake *fakes[2];
  struct kernel kernels[2];
  struct kernels set;
  struct stage stage;
  struct model model;
  double base[8]; /* for models that have one */
};

/* Rows of whole numbers, in their type and as doubles. */
struct rows {
  int64_t type, columns;
  void *data;
  double *values;
};

/* Which allocation fails from now on, and all behind it; negative: none. */
extern _Atomic int64_t allocations_left;

void *memory_of(int64_t bytes);
struct rows rows_of(int64_t type, int64_t n, int64_t columns);

/* Change a value of rows, not of the doubles beside them; returns what it was. */
double set_value(struct rows *rows, int64_t row, int64_t column, double value);

/* `second` may be null. */
struct whole *whole_of(struct fake *first, struct fake *second);
void free_whole(struct whole *whole);

/* Run a model, of whose kernels the first runs, on rows; compare raw scores and sums with what they have to be. */
void run_and_compare(struct executor *executor, const struct whole *whole, int64_t type, int64_t n, int64_t threads);

void stages(void);
void no_memory(void);
void callers(void);
void forks(void);

#endif
