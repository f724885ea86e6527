/* Which kernels run for a number of rows, from what was measured when they were tuned.
 *
 * A plan depends on the number of rows and on how many threads there are, never on how fast a kernel has just been:
 * the same rows always give the same sums, to the last bit.
 */
#ifndef HBTVM_PLAN_H
#define HBTVM_PLAN_H

#include "kernel.h"

/* Rows `start` to `stop` go through kernel number `kernel` of the set. `threads` may share them; filled in by
 * `hbtvm_steps` alone. */
struct plan_step {
  int64_t kernel, start, stop, threads;
};

#define HBTVM_STEPS 2

/* The kernels for one type of rows. Where some are for rows without missing values, those are chosen. */
struct bound_set {
  struct bound *bound; /* all of them */
  int64_t count;
  int64_t type;
  int64_t *chosen; /* numbers of those that plans choose from */
  int64_t choices;
  int64_t measured; /* whether all of these were timed */
  struct plan_step one;  /* the plan of one row */
};

/* Fill in `tuned`, `alone`, `instead`, `chosen`, `choices`, `measured` and `one`. */
void hbtvm_plan_set(struct bound_set *set);

/* The steps that compute n rows, in order; returns how many. */
int64_t hbtvm_plan(const struct bound_set *set, int64_t n, struct plan_step steps[HBTVM_STEPS]);

/* Threads that were at work on the call that a kernel was timed with, or would be on one of n rows if the tuned
 * grain alone decided. */
int64_t hbtvm_busy(const struct bound *bound, int64_t n);

#endif
