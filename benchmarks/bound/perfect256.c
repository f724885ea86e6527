/* Perfect trees of depth 8 with AVX2: top levels by masks of 8 rows, the rest by scalar walks side by side.
 *
 * Node j of level l is entry 2**l + j of a tree's tables. Macros: V, vectors of 8 rows in a block; TOP, levels
 * whose nodes are all compared; WALKS, scalar walks side by side. `rows` must be a multiple of BLOCK, and `sums`
 * 64-byte aligned.
 */
#include "forest256.h"

#define DEPTH 8
#define SIZE (1 << DEPTH)

void score(const float *data, long rows, long trees, const uint8_t *column, const float *threshold,
           const float *value, double *sums) {
    _Alignas(64) float columns[FEATURES * BLOCK];
    _Alignas(64) int32_t nodes[BLOCK];
    for (long row = 0; row < rows; row += BLOCK) {
        const float *block = data + row * FEATURES;
        double *out = sums + row;
        transpose(block, columns);
        for (int i = 0; i < BLOCK; i++) out[i] = 0.0;
        for (long first = 0; first < trees; first += SUMMED) {
            long end = first + SUMMED < trees ? first + SUMMED : trees;
            float part[BLOCK] = {0};
            for (long tree = first; tree < end; tree++) {
                const uint8_t *f = column + tree * SIZE;
                const float *t = threshold + tree * SIZE, *leaf = value + tree * SIZE;
                for (int v = 0; v < V; v++) {
                    __m256 to[1 << TOP];
#pragma GCC unroll 32
                    for (int j = (1 << TOP) - 1; j > 0; j--) {
                        __m256 x = _mm256_load_ps(columns + (long)f[j] * BLOCK + 8 * v);
                        __m256 right = _mm256_cmp_ps(_mm256_set1_ps(t[j]), x, _CMP_NGE_UQ);
                        __m256i two = _mm256_set1_epi32(2 * j);
                        to[j] = j >= 1 << (TOP - 1)
                                    ? _mm256_castsi256_ps(_mm256_sub_epi32(two, _mm256_castps_si256(right)))
                                    : _mm256_blendv_ps(to[2 * j], to[2 * j + 1], right);
                    }
                    _mm256_store_si256((__m256i *)(nodes + 8 * v), _mm256_castps_si256(to[1]));
                }
                for (int i = 0; i < BLOCK; i += WALKS) {
                    uint64_t n[WALKS];
#pragma GCC unroll 16
                    for (int w = 0; w < WALKS; w++) n[w] = (uint32_t)nodes[i + w];
#pragma GCC unroll 8
                    for (int level = TOP; level < DEPTH; level++)
#pragma GCC unroll 16
                        for (int w = 0; w < WALKS; w++) {
                            const float *x = block + (i + w) * FEATURES + f[n[w]];
                            /* n + n + carry, where the carry says that the threshold is below x, or x NaN. */
                            __asm__("vmovss (%1,%0,4), %%xmm15\n\tvucomiss (%2), %%xmm15\n\tadc %0, %0"
                                    : "+r"(n[w])
                                    : "r"(t), "r"(x), "m"(*x)
                                    : "xmm15", "cc");
                        }
#pragma GCC unroll 16
                    for (int w = 0; w < WALKS; w++) part[i + w] += leaf[n[w] - SIZE];
                }
            }
            for (int i = 0; i < BLOCK; i++) out[i] += part[i];
        }
    }
}
