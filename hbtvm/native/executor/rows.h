/* Checks and casts of rows. */
#ifndef HBTVM_ROWS_H
#define HBTVM_ROWS_H

#include "executor/executor.h"

/* Return which non-finite values there are among `count` values: enum refused; 0 if all are finite. */
int hbtvm_kinds(int64_t type, const void *values, int64_t count);

/* Check rows for refused values. Return an enum status; `place` then has the row among these. */
int hbtvm_look(const uint8_t *refuses, int64_t columns, int64_t type, const void *rows, int64_t n, struct place *place);

/* Copy and cast `columns` (null: the first `read` columns) of n rows. */
void hbtvm_gather(const void *from, int64_t from_type, int64_t from_stride, const int64_t *columns, int64_t read,
                  int64_t n, void *to, int64_t to_type, int64_t to_stride);

/* Build a matrix of n rows from columns whose values have 4 or 8 bytes each, of any type. */
void hbtvm_interleave(const void *const *columns, int64_t count, int64_t bytes, int64_t n, void *out);

#endif
