/* Epilogues: conversion of raw scores to the results of a library's method.
 *
 * Steps change some columns of the scores, in float32 if the library computes in float32; values are then numbers of
 * that type, stored as doubles. A rule reduces a row's values to results: the values themselves, or integers. Integers
 * may stand for labels in a table.
 *
 * hbtvm/runtime/native/epilogues/select.py derives epilogues from the nodes of an `OutputSpec`. Results equal those of the
 * nodes, except for the last bits of functions such as the exponential.
 */
#ifndef HBTVM_EPILOGUE_H
#define HBTVM_EPILOGUE_H

#include <stdint.h>

/* Types of rows, scores and results. */
enum type { HBTVM_F32 = 0, HBTVM_F64 = 1, HBTVM_I64 = 2, HBTVM_BYTES = 3, HBTVM_I32 = 4 };

/* Changes of values. */
enum step {
  /* With a constant c for each column. */
  HBTVM_ADD = 0,
  HBTVM_SUBTRACT = 1,
  HBTVM_MULTIPLY = 2,
  HBTVM_DIVIDE = 3,
  HBTVM_MINIMUM = 4,
  HBTVM_MAXIMUM = 5,
  HBTVM_GREATER = 6, /* 1 if the value is above c, else 0 */
  HBTVM_GREATER_EQUAL = 7,
  HBTVM_LESS = 8,
  HBTVM_POWER = 9, /* c ** value */
  /* Of each value. */
  HBTVM_EXP = 10,
  HBTVM_NEGATIVE = 11,
  HBTVM_SIGN = 12,
  HBTVM_SQUARE = 13,
  HBTVM_RECIPROCAL = 14,
  HBTVM_SIGMOID = 15,       /* in float32 above 0, as XGBoost's is */
  HBTVM_SIGNED_SQUARE = 16, /* sign(value) * value ** 2 */
  HBTVM_LIKELIER = 17,      /* 1 if the value is above 1 - value, else 0 */
  /* Of each row. */
  HBTVM_SOFTMAX = 18,
  HBTVM_SHARES = 19, /* values divided by their sum, equal shares if that is 0; in float64 */
  HBTVM_FUNCTION = 20 /* from here on: enum function (pointwise/functions.h) */
};

/* The reduction of a row's values. */
enum rule {
  HBTVM_VALUES = 0,          /* with labels: positions of labels, one per target; negative values count from the end */
  HBTVM_WITH_COMPLEMENT = 1, /* 1 - value, value */
  HBTVM_LARGEST = 2,         /* the position of each target's largest value: the first of equal values, or of NaN */
  HBTVM_COUPLED = 3          /* probabilities of `columns` classes from those of pairs, float64 */
};

/* Maximal number of classes of HBTVM_COUPLED. */
#define HBTVM_MOST_COUPLED 512

struct epilogue {
  int64_t type;        /* of the results; HBTVM_BYTES: labels in a table */
  int64_t row_bytes;   /* of a row's results */
  int64_t plain;       /* the results are the raw scores `first` to `last`, cast to the type */
  int64_t first, last; /* columns of the scores to read: start and stop */
  int64_t columns;     /* results per row */
  int64_t single;      /* whether values are float32 */
  int64_t steps;       /* number of steps */
  const int64_t *step; /* enum step */
  const double *constants; /* of each step, for each column of values; arbitrary for steps without constants */
  int64_t rule;            /* enum rule */
  int64_t targets;
  const int64_t *ends;   /* for HBTVM_LARGEST: the stop of each target's columns, relative to `first` */
  const int64_t *labels; /* index of each target's first label, and the number of labels; null for arbitrary numbers */
  int64_t item;          /* bytes of a label */
  const uint8_t *table;  /* labels, consecutively; null if numbers are results */
};

/* Write the results of n rows.
 *
 * `raw`: raw scores (base and divisor applied), float64, `stride` doubles from one row to the next; may be overwritten.
 * `out`: n times `row_bytes`, aligned to its elements.
 *
 * Numbers that an integer type does not hold, and NaN, become the type's minimum.
 *
 * Returns the index of the first row without a valid label, or -1.
 */
int64_t hbtvm_finish(const struct epilogue *epilogue, double *raw, int64_t stride, int64_t n, void *out);

#endif
