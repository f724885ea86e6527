/* Trees of 31 leaves by bitvectors with AVX2: all 30 nodes as comparisons, ORs and ANDs of masks.
 *
 * Macros: V, vectors of 8 rows at once; UNROLL, nodes unrolled; GATHER, 1 to look up leaf values by gathers in
 * place of permutes. `rows` must be a multiple of BLOCK, and `sums` 64-byte aligned.
 */
#include "forest256.h"

#define NODES 30
#define LEAVES 32

void score(const float *data, long rows, long trees, const int32_t *column, const float *threshold,
           const int32_t *mask, const float *value, double *sums) {
    _Alignas(64) float columns[FEATURES * BLOCK];
    const __m256i zero = _mm256_setzero_si256();
    for (long row = 0; row < rows; row += BLOCK) {
        double *out = sums + row;
        transpose(data + row * FEATURES, columns);
        for (int i = 0; i < BLOCK; i++) out[i] = 0.0;
        for (long first = 0; first < trees; first += SUMMED) {
            long end = first + SUMMED < trees ? first + SUMMED : trees;
            _Alignas(64) float part[BLOCK] = {0};
            for (long tree = first; tree < end; tree++) {
                __m256i bits[V];
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) bits[v] = _mm256_set1_epi32(-1);
                UNROLLED(UNROLL)
                for (int node = 0; node < NODES; node++) {
                    long at = tree * NODES + node;
                    const float *x = columns + (long)column[at] * BLOCK;
                    __m256 bound = _mm256_set1_ps(threshold[at]);
                    __m256i keep = _mm256_set1_epi32(mask[at]);
#pragma GCC unroll 8
                    for (int v = 0; v < V; v++) {
                        __m256 left = _mm256_cmp_ps(bound, _mm256_load_ps(x + 8 * v), _CMP_GE_OQ);
                        bits[v] = _mm256_and_si256(bits[v], _mm256_or_si256(keep, _mm256_castps_si256(left)));
                    }
                }
                const float *leaf_value = value + tree * LEAVES;
#pragma GCC unroll 8
                for (int v = 0; v < V; v++) {
                    /* The lowest bit, as a float, has its number as exponent. */
                    __m256i lowest = _mm256_and_si256(bits[v], _mm256_sub_epi32(zero, bits[v]));
                    __m256i exponent = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(lowest)), 23);
                    __m256i leaf = _mm256_sub_epi32(exponent, _mm256_set1_epi32(127));
                    __m256 found;
                    if (GATHER) {
                        found = _mm256_i32gather_ps(leaf_value, leaf, 4);
                    } else {
                        __m256 quarter[4];
#pragma GCC unroll 4
                        for (int q = 0; q < 4; q++)
                            quarter[q] = _mm256_permutevar8x32_ps(_mm256_loadu_ps(leaf_value + 8 * q), leaf);
                        __m256 eight = _mm256_castsi256_ps(_mm256_slli_epi32(leaf, 28));
                        __m256 sixteen = _mm256_castsi256_ps(_mm256_slli_epi32(leaf, 27));
                        __m256 low = _mm256_blendv_ps(quarter[0], quarter[1], eight);
                        __m256 high = _mm256_blendv_ps(quarter[2], quarter[3], eight);
                        found = _mm256_blendv_ps(low, high, sixteen);
                    }
                    _mm256_store_ps(part + 8 * v, _mm256_add_ps(_mm256_load_ps(part + 8 * v), found));
                }
            }
            for (int i = 0; i < BLOCK; i++) out[i] += part[i];
        }
    }
}
