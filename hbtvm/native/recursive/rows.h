/* Batches for kernels on other devices, such as a GPU: the linearisation and the readout of `recursive.h`, separately.
 *
 * A call begins with a batch, writes its arrays by row, runs its kernels, and reads results from their states. Each
 * begin needs an end, and the batch must not change in between.
 */
#ifndef HBTVM_RECURSIVE_ROWS_H
#define HBTVM_RECURSIVE_ROWS_H

#include "recursive/recursive.h"

/* A batch by row. Row 0 stands for absent children. */
struct recursive_rows {
  void *own;
  int64_t levels;
  const int32_t *start;  /* levels + 1: the first row of each level, and the stop of the last */
  int64_t widest;        /* nodes of the largest level */
  int64_t arity;         /* places for children: the model's, or the maximum over nodes; at least 1 */
  int64_t results;
  int64_t first_read;    /* the lowest row that results read; the stop of the last level if none */
};

/* Check a batch and order its nodes; returns an enum recursive_status. Only HBTVM_OK needs an end. */
int hbtvm_recursive_begin(struct recursive *recursive, const struct recursive_batch *batch, struct recursive_rows *rows,
                          struct recursive_place *place);

/* Write `child`, int32 (nodes + 1, arity), rows of children, 0 if absent; and each input, (nodes + 1,) or (nodes + 1,
 * size). Row 0 is all zeros. */
void hbtvm_recursive_fill(const struct recursive *recursive, const struct recursive_batch *batch,
                          const struct recursive_rows *rows, int32_t *child, void *const *inputs);

/* Write results, float32, of `state`, (nodes + 1, S), of which only rows from `first_read` on are read. Returns an enum
 * status. */
int hbtvm_recursive_read(struct recursive *recursive, const struct recursive_batch *batch,
                         const struct recursive_rows *rows, const float *state, float *out);

void hbtvm_recursive_end(struct recursive *recursive, struct recursive_rows *rows);

/* The size of `struct recursive_rows`, for the loader's check. */
int64_t hbtvm_recursive_rows_size(void);

#endif
