/* What the hand-written kernels share: blocks of rows, transposed, in V vectors of 16 float32. */
#ifndef BOUND_FOREST_H
#define BOUND_FOREST_H

#include <immintrin.h>
#include <stdint.h>

#define BLOCK (16 * V)
#define FEATURES 28
#define SUMMED 8 /* trees whose values are added in float32 before they are added in float64 */

/* Rows [rows][FEATURES] to columns [FEATURES][BLOCK]. */
static inline void transpose(const float *rows, float *columns) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i step = _mm512_mullo_epi32(lane, _mm512_set1_epi32(FEATURES));
    for (int f = 0; f < FEATURES; f++)
        for (int v = 0; v < V; v++)
            _mm512_store_ps(columns + f * BLOCK + 16 * v,
                            _mm512_i32gather_ps(step, rows + f + 16 * v * FEATURES, 4));
}

/* Add float32 sums of a few trees to the float64 sums of BLOCK rows. */
static inline void widen(double *sums, const __m512 *part) {
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
        double *at = sums + 16 * v;
        __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(part[v]));
        __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(part[v], 1));
        _mm512_store_pd(at, _mm512_add_pd(_mm512_load_pd(at), low));
        _mm512_store_pd(at + 8, _mm512_add_pd(_mm512_load_pd(at + 8), high));
    }
}

#endif
