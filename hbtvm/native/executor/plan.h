/* Selection of kernels for a number of rows, from measurements of the tuning.
 *
 * A plan depends on the number of rows and of threads, never on recent times: the same rows always give the same sums,
 * to the last bit.
 */
#ifndef HBTVM_PLAN_H
#define HBTVM_PLAN_H

#include "executor/kernel.h"

/* Kernel `kernel` of the set computes rows `start` to `stop`. `threads` may share them; only `hbtvm_steps` sets it. */
struct plan_step {
  int64_t kernel, start, stop, threads;
};

#define HBTVM_STEPS 2

/* The kernels for one type of rows. Kernels for rows without missing values are preferred. */
struct bound_set {
  struct bound *bound; /* all kernels */
  int64_t count;
  int64_t type;
  int64_t *chosen; /* indices of the kernels that plans choose from */
  int64_t choices;
  int64_t measured; /* whether all of these were timed */
  struct plan_step one;  /* the plan of one row */
};

/* Fill in `tuned`, `alone`, `instead`, `chosen`, `choices`, `measured` and `one`. */
void hbtvm_plan_set(struct bound_set *set);

/* Compute the steps for n rows, in order; return their number. */
int64_t hbtvm_plan(const struct bound_set *set, int64_t n, struct plan_step steps[HBTVM_STEPS]);

/* Return the number of threads in a kernel's timed call, or in a call of n rows if only the tuned grain decided. */
int64_t hbtvm_busy(const struct bound *bound, int64_t n);

#endif
