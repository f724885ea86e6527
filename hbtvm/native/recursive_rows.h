/* Batches for kernels elsewhere, on a GPU: the linearisation and the readout of `recursive.h`, one by one.
 *
 * A call begins with a batch, has its arrays written by row, runs its kernels, and has results read out of the states
 * that they made. Whoever began has to end, and nothing of the batch may change between. */
#ifndef HBTVM_RECURSIVE_ROWS_H
#define HBTVM_RECURSIVE_ROWS_H

#include "recursive.h"

/* A batch by row. Row 0 is that of absent children. */
struct recursive_rows {
  void *own;
  int64_t levels;
  const int32_t *start;  /* levels + 1: the first row of each level, and the one behind the last */
  int64_t widest;        /* nodes of the largest level */
  int64_t arity;         /* places for children: the model's, or as many as any node has; at least 1 */
  int64_t results;
  int64_t first_read;    /* the lowest row that results are read from; the one behind the last, if none is */
};

/* Check a batch and order its nodes; an enum recursive_status. Unless that is HBTVM_OK, there is nothing to end. */
int hbtvm_recursive_begin(struct recursive *recursive, const struct recursive_batch *batch, struct recursive_rows *rows,
                          struct recursive_place *place);

/* Write `child`, int32 (nodes + 1, arity), rows of children, 0 where there is none; and each input, (nodes + 1,) or
 * (nodes + 1, size). Of row 0 all is 0. */
void hbtvm_recursive_fill(const struct recursive *recursive, const struct recursive_batch *batch,
                          const struct recursive_rows *rows, int32_t *child, void *const *inputs);

/* Write results, float32, of `state`, (nodes + 1, S), of which rows from `first_read` on are looked at. Returns an enum
 * status. */
int hbtvm_recursive_read(struct recursive *recursive, const struct recursive_batch *batch,
                         const struct recursive_rows *rows, const float *state, float *out);

void hbtvm_recursive_end(struct recursive *recursive, struct recursive_rows *rows);

/* The size of `struct recursive_rows`, which a loader compares with its own. */
int64_t hbtvm_recursive_rows_size(void);

#endif
