/* Values of rows: what is not finite, and casts. */
#ifndef HBTVM_ROWS_H
#define HBTVM_ROWS_H

#include "executor.h"

/* Whether all of `count` values are finite. */
int hbtvm_all_finite(int64_t type, const void *values, int64_t count);

/* What there is among `count` values that is not finite: enum refused. */
int hbtvm_kinds(int64_t type, const void *values, int64_t count);

/* Whether rows hold a value that is refused. Returns an enum status; `place` is then told, its row among these. */
int hbtvm_look(const uint8_t *refuses, int64_t columns, int64_t type, const void *rows, int64_t n, struct place *place);

/* Copy `columns` (null: the first `read` ones) of n rows, casting them. */
void hbtvm_gather(const void *from, int64_t from_type, int64_t from_stride, const int64_t *columns, int64_t read,
                  int64_t n, void *to, int64_t to_type, int64_t to_stride);

/* A matrix of n rows of columns whose values have 4 or 8 bytes each, of any type. */
void hbtvm_interleave(const void *const *columns, int64_t count, int64_t bytes, int64_t n, void *out);

#endif
