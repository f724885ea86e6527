/* Perfect trees of depth 8: top levels by masks, the next by permutes, the rest by gathers or
 * scalar loads.
 *
 * Node j of level l is entry 2**l + j of a tree's tables. Macros: V, vectors of 16 rows at once; TOP,
 * levels whose nodes are all compared; PERMUTED, level up to which thresholds come from registers (features
 * of every level do: 128 bytes are two registers); SCALAR, 1 to look up by scalar loads in place of gathers.
 * `rows` must be a multiple of BLOCK, and `sums` 64-byte aligned.
 */
#include "forest.h"

#define DEPTH 8
#define SIZE (1 << DEPTH)

/* One threshold for each lane, of 2**level of them. */
static inline __attribute__((always_inline)) __m512 pick(const float *table, int level, __m512i node) {
    if (level >= PERMUTED) return look_up(table, node, SCALAR);
    if (level <= 4) return _mm512_permutexvar_ps(node, _mm512_loadu_ps(table));
    __m512 found = _mm512_permutex2var_ps(_mm512_loadu_ps(table), node, _mm512_loadu_ps(table + 16));
    if (level == 5) return found;
    __m512 above = _mm512_permutex2var_ps(_mm512_loadu_ps(table + 32), node, _mm512_loadu_ps(table + 48));
    found = _mm512_mask_mov_ps(found, _mm512_test_epi32_mask(node, _mm512_set1_epi32(32)), above);
    if (level == 6) return found;
    __m512 third = _mm512_permutex2var_ps(_mm512_loadu_ps(table + 64), node, _mm512_loadu_ps(table + 80));
    above = _mm512_permutex2var_ps(_mm512_loadu_ps(table + 96), node, _mm512_loadu_ps(table + 112));
    third = _mm512_mask_mov_ps(third, _mm512_test_epi32_mask(node, _mm512_set1_epi32(32)), above);
    return _mm512_mask_mov_ps(found, _mm512_test_epi32_mask(node, _mm512_set1_epi32(64)), third);
}

/* One feature for each lane; the tables have room for 128 entries from any level on. */
static inline __attribute__((always_inline)) __m512i feature(const uint8_t *table, int level, __m512i node) {
    const __mmask64 lowest = 0x1111111111111111;
    __m512i low = _mm512_loadu_si512(table);
    if (level <= 6) return _mm512_maskz_permutexvar_epi8(lowest, node, low);
    return _mm512_maskz_permutex2var_epi8(lowest, low, node, _mm512_loadu_si512(table + 64));
}

void score(const float *data, long rows, long trees, const uint8_t *column, const float *threshold,
           const float *value, double *sums) {
    _Alignas(64) float columns[FEATURES * BLOCK];
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i width = _mm512_set1_epi32(BLOCK);
    for (long row = 0; row < rows; row += BLOCK) {
        double *out = sums + row;
        transpose(data + row * FEATURES, columns);
        for (int i = 0; i < BLOCK; i++) out[i] = 0.0;
        for (long first = 0; first < trees; first += SUMMED) {
            long end = first + SUMMED < trees ? first + SUMMED : trees;
            __m512 part[V];
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) part[v] = _mm512_setzero_ps();
            for (long tree = first; tree < end; tree++) {
                const uint8_t *f = column + tree * SIZE;
                const float *t = threshold + tree * SIZE;
                __m512i node[V];
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) {
                    /* Bottom up: where a node's subtree leads, by comparing all of its nodes. */
                    __m512i to[1 << TOP];
#pragma GCC unroll 32
                    for (int j = (1 << TOP) - 1; j > 0; j--) {
                        __m512 x = _mm512_load_ps(columns + (long)f[j] * BLOCK + 16 * v);
                        __mmask16 right = _mm512_cmp_ps_mask(_mm512_set1_ps(t[j]), x, _CMP_NGE_UQ);
                        int last = 2 * j - (1 << TOP);
                        to[j] = last >= 0 ? _mm512_mask_mov_epi32(_mm512_set1_epi32(last), right,
                                                                  _mm512_set1_epi32(last + 1))
                                          : _mm512_mask_mov_epi32(to[2 * j], right, to[2 * j + 1]);
                    }
                    node[v] = to[1];
                }
#pragma GCC unroll 8
                for (int level = TOP; level < DEPTH; level++) {
#pragma GCC unroll 8
                    for (int v = 0; v < V; v++) {
                        __m512i from = feature(f + (1 << level), level, node[v]);
                        __m512i at = _mm512_add_epi32(_mm512_mullo_epi32(from, width), lane);
                        if ((BLOCK & (BLOCK - 1)) == 0)
                            at = _mm512_or_si512(_mm512_slli_epi32(from, __builtin_ctz(BLOCK)), lane);
                        __m512 x = look_up(columns + 16 * v, at, SCALAR);
                        __m512 bound = pick(t + (1 << level), level, node[v]);
                        __mmask16 right = _mm512_cmp_ps_mask(bound, x, _CMP_NGE_UQ);
                        node[v] = _mm512_add_epi32(node[v], node[v]);
                        node[v] = _mm512_mask_or_epi32(node[v], right, node[v], one);
                    }
                }
#pragma GCC unroll 8
                for (int v = 0; v < V; v++)
                    part[v] = _mm512_add_ps(part[v], look_up(value + tree * SIZE, node[v], SCALAR));
            }
            widen(out, part);
        }
    }
}
