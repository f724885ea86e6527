/* What the hand-written kernels share: blocks of rows, transposed, in V vectors of 16 float32. */
#ifndef BOUND_FOREST_H
#define BOUND_FOREST_H

#include <immintrin.h>
#include <stdint.h>

#include "shape.h"

#define BLOCK (16 * V)

/* 16 words of a table: by one instruction, or by one load for each, which some processors do faster. */
static inline __attribute__((always_inline)) __m512 look_up(const float *table, __m512i at, int scalar) {
    if (!scalar) return _mm512_i32gather_ps(at, table, 4);
    _Alignas(64) int32_t i[16];
    _mm512_store_si512(i, at);
    __m128 quarter[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
        quarter[q] = _mm_setr_ps(table[i[4 * q]], table[i[4 * q + 1]], table[i[4 * q + 2]], table[i[4 * q + 3]]);
    __m512 low = _mm512_castps256_ps512(_mm256_set_m128(quarter[1], quarter[0]));
    return _mm512_insertf32x8(low, _mm256_set_m128(quarter[3], quarter[2]), 1);
}

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
