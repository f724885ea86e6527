/* Epilogues: conversion of raw scores to the results of a library's method.
 *
 * There are three steps. Some columns of the scores are transformed (`transform`, then `steps`), in float32 if the
 * library computes in float32; values are then numbers of that type, stored as doubles. A rule reduces a row's values
 * to results: the values themselves, or integers. Integers may stand for labels in a table.
 *
 * Results equal those of `OutputSpec` (hbtvm/graph/outputs/output.py), except for the last bits of functions such as the
 * exponential.
 */
#ifndef HBTVM_EPILOGUE_H
#define HBTVM_EPILOGUE_H

#include <stdint.h>

/* Types of rows, scores and results. */
enum type { HBTVM_F32 = 0, HBTVM_F64 = 1, HBTVM_I64 = 2, HBTVM_BYTES = 3, HBTVM_I32 = 4 };

/* The first function applied to values; see hbtvm/graph/outputs/transforms.py. */
enum transform {
  HBTVM_IDENTITY = 0,
  HBTVM_SCALED = 1,  /* times `factor`, in float64 */
  HBTVM_SIGMOID = 2, /* 1 / (1 + exp(factor * value)) */
  HBTVM_SOFTMAX = 3,
  HBTVM_EXP = 4,
  HBTVM_SOFTPLUS = 5,
  HBTVM_SIGNED_SQUARE = 6,
  HBTVM_HINGE = 7,
  HBTVM_ISOLATION = 8,   /* -(2 ** -(value / factor)), or -1/2 if the factor is 0 */
  HBTVM_ONE_VS_REST = 9, /* sigmoids divided by their sum */
  HBTVM_MODIFIED_HUBER = 10
};

/* Further steps; see hbtvm/graph/outputs/inverse.py. The first four have a constant for each column. */
enum step {
  HBTVM_ADD = 0,
  HBTVM_SUBTRACT = 1,
  HBTVM_MULTIPLY = 2,
  HBTVM_DIVIDE = 3,
  HBTVM_STEP_EXP = 4,
  HBTVM_STEP_NEGATIVE = 5,
  HBTVM_STEP_SIGN = 6,
  HBTVM_STEP_SQUARE = 7,
  HBTVM_STEP_RECIPROCAL = 8,
  HBTVM_STEP_RADIANS = 9, /* of degrees */
  HBTVM_STEP_DEGREES = 10,
  HBTVM_STEP_LIBRARY = 11 /* from here on: functions of libm, in the order of `library` in epilogue/transforms.h */
};

/* The reduction of a row's values. All except the first two and the last give integers. */
enum rule {
  HBTVM_VALUES = 0,
  HBTVM_WITH_COMPLEMENT = 1, /* 1 - value, value */
  HBTVM_LARGEST = 2,         /* the position of each target's largest value: the first of equal values, or of NaN */
  HBTVM_ABOVE = 3,           /* for each value, whether it is above `bound` */
  HBTVM_NOT_BELOW = 4,       /* whether it is at least `bound` */
  HBTVM_LIKELIER = 5,        /* whether it is above 1 - value */
  HBTVM_SIDE = 6,            /* -1 below `bound`, else 1 */
  HBTVM_POSITION = 7,        /* values are positions of labels, one per target; negative values count from the end */
  HBTVM_COUPLED = 8          /* probabilities of `columns` classes from those of pairs, float64 */
};

/* Maximal number of classes of HBTVM_COUPLED. */
#define HBTVM_MOST_COUPLED 512

struct epilogue {
  int64_t type;        /* of the results; HBTVM_BYTES: labels in a table */
  int64_t row_bytes;   /* of a row's results */
  int64_t plain;       /* the results are the raw scores `first` to `last`, cast to the type */
  int64_t first, last; /* columns of the scores to read: start and stop */
  int64_t columns;     /* results per row */
  int64_t transform;   /* enum transform */
  int64_t single;      /* whether values are float32 */
  double factor;       /* of the transform */
  int64_t steps;       /* number of steps */
  const int64_t *step; /* enum step */
  const double *constants; /* of each step, for each column of values; arbitrary for steps without constants */
  int64_t rule;            /* enum rule */
  double bound;
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
