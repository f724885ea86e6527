/* What the hand-written kernels for AVX2 share. */
#ifndef BOUND_FOREST256_H
#define BOUND_FOREST256_H

#include <immintrin.h>
#include <stdint.h>

#include "shape.h"

#ifndef BLOCK
#define BLOCK (8 * V)
#endif

/* Rows [rows][FEATURES] to columns [FEATURES][BLOCK]. */
static inline __attribute__((unused)) void transpose(const float *rows, float *columns) {
    for (int f = 0; f < FEATURES; f++)
        for (int i = 0; i < BLOCK; i++) columns[f * BLOCK + i] = rows[i * FEATURES + f];
}

#endif
