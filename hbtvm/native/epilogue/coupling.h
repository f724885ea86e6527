/* Probabilities of classes from those of pairs; see hbtvm/operators/coupling.py. */
#ifndef HBTVM_EPILOGUE_COUPLING_H
#define HBTVM_EPILOGUE_COUPLING_H

#include <math.h>

#include "epilogue/epilogue.h"

/* Tolerance of the classes' total error. */
#define TOLERANCE 0.005
#define LEAST_ROUNDS 100

/* Return the index of (i, j) among the pairs (0, 1), (0, 2), ..., (1, 2), ...; i and j differ, in any order. */
static inline int64_t pair_at(int64_t i, int64_t j, int64_t classes) {
  int64_t low = i < j ? i : j, high = i < j ? j : i;
  return low * (2 * classes - low - 1) / 2 + high - low - 1;
}

/* Write a row's probabilities to p. `pairs` becomes the off-diagonal part of Q. */
static void coupled(double *pairs, int64_t classes, double *p) {
  double diagonal[HBTVM_MOST_COUPLED], product[HBTVM_MOST_COUPLED], count = (double)classes;
  int64_t rounds = classes > LEAST_ROUNDS ? classes : LEAST_ROUNDS;
  for (int64_t t = 0; t < classes; ++t) {
    diagonal[t] = 0.0;
    p[t] = 1.0 / count;
  }
  double *pair = pairs;
  for (int64_t i = 0; i < classes; ++i)
    for (int64_t j = i + 1; j < classes; ++j, ++pair) {
      double r = *pair, other = 1.0 - r;
      diagonal[i] += other * other;
      diagonal[j] += r * r;
      *pair = -r * other;
    }
  for (int64_t round = 0; round < rounds; ++round) {
    double sum = 0.0, error = 0.0;
    for (int64_t i = 0; i < classes; ++i) {
      double dot = 0.0;
      for (int64_t j = 0; j < classes; ++j) dot += p[j] * (i == j ? diagonal[i] : pairs[pair_at(i, j, classes)]);
      product[i] = dot;
      sum += p[i] * dot;
    }
    for (int64_t i = 0; i < classes; ++i) {
      double off = fabs(product[i] - sum);
      error = off > error || off != off ? off : error;
    }
    /* Also terminates for rows of NaN. */
    if (!(error >= TOLERANCE / count)) return;
    for (int64_t t = 0; t < classes; ++t) {
      double own = diagonal[t], step = (sum - product[t]) / own;
      sum = (sum + step * (step * own + 2 * product[t])) / (1 + step) / (1 + step);
      p[t] += step;
      for (int64_t j = 0; j < classes; ++j) {
        double q = j == t ? own : pairs[pair_at(t, j, classes)];
        product[j] = (product[j] + step * q) / (1 + step);
        p[j] /= 1 + step;
      }
    }
  }
}

#endif
