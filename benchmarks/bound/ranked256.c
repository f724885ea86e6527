/* Perfect trees of depth 8 over ranks of one byte with AVX2: 5 levels by masks of 32 rows, the last 3 by shuffles.
 *
 * Rows are given as ranks, ROOM for each row: finding them is not timed. Node j of level l is entry 2**l + j of a
 * tree's tables; `rank` begins at -128. A record has the places of 7 nodes' columns among a row's first and second
 * 16, and their ranks. Macros: V, vectors of 32 rows in a block; UNROLL, vectors that share the loads of nodes;
 * WALKS, rows unrolled. `rows` must be a multiple of BLOCK, and `sums` 64-byte aligned.
 */
#define BLOCK (32 * V)
#include "forest256.h"

#define DEPTH 8
#define SIZE (1 << DEPTH)
#define TOP 5
#define ROOM 32

typedef struct {
    uint8_t low[8], high[8];
    int8_t rank[8];
} record;

void score(const int8_t *data, long rows, long trees, const uint8_t *column, const int8_t *rank,
           const record *records, const float *value, const uint8_t *leaf_of, double *sums) {
    _Alignas(64) int8_t ranks[FEATURES * BLOCK];
    _Alignas(64) uint8_t nodes[BLOCK];
    for (long row = 0; row < rows; row += BLOCK) {
        double *out = sums + row;
        const int8_t *by_row = data + row * ROOM;
        for (int f = 0; f < FEATURES; f++)
            for (int i = 0; i < BLOCK; i++) ranks[f * BLOCK + i] = by_row[i * ROOM + f];
        for (int i = 0; i < BLOCK; i++) out[i] = 0.0;
        for (long first = 0; first < trees; first += SUMMED) {
            long end = first + SUMMED < trees ? first + SUMMED : trees;
            float part[BLOCK] = {0};
            for (long tree = first; tree < end; tree++) {
                const uint8_t *f = column + tree * SIZE;
                const int8_t *t = rank + tree * SIZE;
                UNROLLED(UNROLL)
                for (int v = 0; v < V; v++) {
                    __m256i to[1 << TOP];
#pragma GCC unroll 32
                    for (int j = (1 << TOP) - 1; j > 0; j--) {
                        __m256i x = _mm256_load_si256((const __m256i *)(ranks + (long)f[j] * BLOCK + 32 * v));
                        __m256i right = _mm256_cmpgt_epi8(x, _mm256_set1_epi8(t[j]));
                        __m256i two = _mm256_set1_epi8(2 * j - (1 << TOP));
                        to[j] = j >= 1 << (TOP - 1) ? _mm256_sub_epi8(two, right)
                                                    : _mm256_blendv_epi8(to[2 * j], to[2 * j + 1], right);
                    }
                    _mm256_store_si256((__m256i *)(nodes + 32 * v), to[1]);
                }
                UNROLLED(WALKS)
                for (int i = 0; i < BLOCK; i++) {
                    const record *at = records + (tree << TOP) + nodes[i];
                    const __m128i *own = (const __m128i *)(by_row + i * ROOM);
                    __m128i low = _mm_shuffle_epi8(own[0], _mm_loadl_epi64((const __m128i *)at->low));
                    __m128i high = _mm_shuffle_epi8(own[1], _mm_loadl_epi64((const __m128i *)at->high));
                    __m128i limit = _mm_loadl_epi64((const __m128i *)at->rank);
                    uint8_t tests = _mm_movemask_epi8(_mm_cmpgt_epi8(_mm_or_si128(low, high), limit));
                    part[i] += value[tree * SIZE + nodes[i] * 8 + leaf_of[tests]];
                }
            }
            for (int i = 0; i < BLOCK; i++) out[i] += part[i];
        }
    }
}
