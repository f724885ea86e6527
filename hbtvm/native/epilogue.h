/* Epilogues: from the raw scores of rows to what a library's method returns. */
#ifndef HBTVM_EPILOGUE_H
#define HBTVM_EPILOGUE_H

#include <stdint.h>

/* Types of rows, scores and results. */
enum type { HBTVM_F32 = 0, HBTVM_F64 = 1, HBTVM_I64 = 2, HBTVM_BYTES = 3 };

struct epilogue {
  int64_t type;      /* of the results; HBTVM_BYTES: labels that a table holds */
  int64_t row_bytes; /* of a row's results */
  int64_t plain;     /* the results are the raw scores `first` to `last`, cast to the type */
  int64_t first, last;
};

/* Write the results of n rows.
 *
 * `raw`: raw scores (base and divisor applied), float64; `stride` doubles from one row to the next. They may be
 * overwritten. `out`: n times `row_bytes`, aligned to its elements.
 *
 * Returns the number of the first row that has none of the labels, or -1.
 */
int64_t hbtvm_finish(const struct epilogue *epilogue, double *raw, int64_t stride, int64_t n, void *out);

#endif
