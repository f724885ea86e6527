/* Trees of 31 leaves by bitvectors: all 30 nodes as comparisons into masks, masked ANDs, a permute.
 *
 * Macros: V, vectors of 16 rows at once; UNROLL, nodes unrolled. `rows` must be a multiple
 * of BLOCK, and `sums` 64-byte aligned.
 */
#include "forest.h"

#define NODES 30
#define LEAVES 32

void score(const float *data, long rows, long trees, const int32_t *column, const float *threshold,
           const int32_t *mask, const float *value, double *sums) {
    _Alignas(64) float columns[FEATURES * BLOCK];
    const __m512i one = _mm512_set1_epi32(1);
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
                __m512i bits[V];
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) bits[v] = _mm512_set1_epi32(-1);
                UNROLLED(UNROLL)
                for (int node = 0; node < NODES; node++) {
                    long at = tree * NODES + node;
                    const float *x = columns + (long)column[at] * BLOCK;
                    __m512 bound = _mm512_set1_ps(threshold[at]);
                    __m512i keep = _mm512_set1_epi32(mask[at]);
#pragma GCC unroll 8
                    for (int v = 0; v < V; v++) {
                        __mmask16 right = _mm512_cmp_ps_mask(bound, _mm512_load_ps(x + 16 * v), _CMP_NGE_UQ);
                        bits[v] = _mm512_mask_and_epi32(bits[v], right, bits[v], keep);
                    }
                }
                __m512 low = _mm512_loadu_ps(value + tree * LEAVES);
                __m512 high = _mm512_loadu_ps(value + tree * LEAVES + 16);
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) {
                    __m512i below = _mm512_andnot_si512(bits[v], _mm512_sub_epi32(bits[v], one));
                    __m512i leaf = _mm512_popcnt_epi32(below);
                    part[v] = _mm512_add_ps(part[v], _mm512_permutex2var_ps(low, leaf, high));
                }
            }
            widen(out, part);
        }
    }
}
