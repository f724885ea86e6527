/* Perfect trees of depth 8 over ranks of two bytes with AVX2: 5 levels by masks of 16 rows, the last 3 by shuffles.
 *
 * As ranked256.c, for more thresholds: `rank` begins at -32768, and a record has for each 8 columns of a row the
 * places of the bytes of 7 nodes' columns. Macros: V, vectors of 16 rows in a block; UNROLL, vectors that share the
 * loads of nodes; WALKS, rows unrolled. `rows` must be a multiple of BLOCK, and `sums` 64-byte aligned.
 */
#define BLOCK (16 * V)
#include "forest256.h"

#define DEPTH 8
#define SIZE (1 << DEPTH)
#define TOP 5
#define ROOM 32
#define LINE 64

typedef struct {
    uint8_t low[32], high[32];
    int16_t rank[8];
} record;

static inline void fetch(const void *from, long size) {
    for (long at = 0; at < size; at += LINE) __builtin_prefetch((const char *)from + at);
}

void score(const int16_t *data, long rows, long trees, const uint8_t *column, const int16_t *rank,
           const record *records, const float *value, const uint8_t *leaf_of, double *sums) {
    _Alignas(64) int16_t ranks[FEATURES * BLOCK];
    _Alignas(64) uint16_t nodes[BLOCK];
    for (long row = 0; row < rows; row += BLOCK) {
        double *out = sums + row;
        const int16_t *by_row = data + row * ROOM;
        for (int f = 0; f < FEATURES; f++)
            for (int i = 0; i < BLOCK; i++) ranks[f * BLOCK + i] = by_row[i * ROOM + f];
        for (int i = 0; i < BLOCK; i++) out[i] = 0.0;
        for (long first = 0; first < trees; first += SUMMED) {
            long end = first + SUMMED < trees ? first + SUMMED : trees;
            float part[BLOCK] = {0};
            for (long tree = first; tree < end; tree++) {
                const uint8_t *f = column + tree * SIZE;
                const int16_t *t = rank + tree * SIZE;
                /* Prefetches never fault, so the end of the tables needs no care. */
                fetch(records + ((tree + 1) << TOP), sizeof(record) << TOP);
                fetch(value + (tree + 1) * SIZE, SIZE * sizeof(float));
                UNROLLED(UNROLL)
                for (int v = 0; v < V; v++) {
                    __m256i to[1 << TOP];
#pragma GCC unroll 32
                    for (int j = (1 << TOP) - 1; j > 0; j--) {
                        __m256i x = _mm256_load_si256((const __m256i *)(ranks + (long)f[j] * BLOCK + 16 * v));
                        __m256i right = _mm256_cmpgt_epi16(x, _mm256_set1_epi16(t[j]));
                        __m256i two = _mm256_set1_epi16(2 * j - (1 << TOP));
                        /* Nodes on the right have higher numbers. */
                        to[j] = j >= 1 << (TOP - 1)
                                    ? _mm256_sub_epi16(two, right)
                                    : _mm256_max_epi16(to[2 * j], _mm256_and_si256(to[2 * j + 1], right));
                    }
                    _mm256_store_si256((__m256i *)(nodes + 16 * v), to[1]);
                }
                UNROLLED(WALKS)
                for (int i = 0; i < BLOCK; i++) {
                    const record *at = records + (tree << TOP) + nodes[i];
                    const __m256i *own = (const __m256i *)(by_row + i * ROOM);
                    __m256i low = _mm256_shuffle_epi8(own[0], _mm256_loadu_si256((const __m256i *)at->low));
                    __m256i high = _mm256_shuffle_epi8(own[1], _mm256_loadu_si256((const __m256i *)at->high));
                    __m256i both = _mm256_or_si256(low, high);
                    __m128i x = _mm_or_si128(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
                    __m128i above = _mm_cmpgt_epi16(x, _mm_loadu_si128((const __m128i *)at->rank));
                    uint8_t tests = _mm_movemask_epi8(_mm_packs_epi16(above, above));
                    part[i] += value[tree * SIZE + nodes[i] * 8 + leaf_of[tests]];
                }
            }
            for (int i = 0; i < BLOCK; i++) out[i] += part[i];
        }
    }
}
