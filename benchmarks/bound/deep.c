/* Trees of unlimited depth: scalar walks side by side over slots of 8 bytes, a tile of rows for each tree.
 *
 * A slot is a node's threshold, and column and offset of its left child; the right child is in the next slot. A
 * leaf's column is always -infinity and its offset 0, so walks stay; its value is in place of the threshold.
 * Macros: WALKS, walks side by side; TILE, rows that walk a tree before the next; FIRST, levels before a test for
 * arrival, an even number; QUEUE, 1 to queue the rows that have not arrived by then and to walk them PASS levels
 * at a time, 0 to walk on until all walks of a block have arrived; PREFETCH, 1 to fetch a share of the next tree
 * with each block.
 * `rows` must be a multiple of TILE.
 */
#include <stdint.h>

#include "shape.h"

#define STRIDE 32 /* of a row: features, then -infinity */
#define BITS 8

#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define UNROLLED _Pragma("GCC unroll 32")
#define ROLLED _Pragma("GCC unroll 1")
#endif

typedef struct {
    float threshold;
    uint32_t link;
} Slot;

static inline __attribute__((always_inline)) uint64_t offset(Slot slot) { return slot.link >> BITS; }

static inline __attribute__((always_inline)) uint64_t next(uint64_t at, Slot slot, const float *row) {
    return at + offset(slot) + !(row[slot.link & ((1 << BITS) - 1)] <= slot.threshold);
}

void score(const float *data, long rows, long trees, const int64_t *root, const Slot *slots, double *sums) {
    static int32_t reached[TILE], queue[2][TILE + WALKS];
    for (long first = 0; first < rows; first += TILE) {
        const float *tile = data + first * STRIDE;
        double *out = sums + first;
        for (int i = 0; i < TILE; i++) out[i] = 0.0;
        for (long tree = 0; tree < trees; tree++) {
            const Slot *node = slots + root[tree], *following = slots + root[tree + 1];
            long lines = PREFETCH ? (following - node) * sizeof(Slot) * WALKS / (64 * TILE) + 1 : 0, waiting = 0;
            ROLLED
            for (int row = 0; row < TILE; row += WALKS) {
                const char *line = (const char *)following + row / WALKS * lines * 64;
                for (long i = 0; i < lines; i++) __builtin_prefetch(line + 64 * i, 0, 2);
                const float *x = tile + row * STRIDE;
                uint64_t at[WALKS] = {0};
                ROLLED
                for (int level = 0; level < FIRST; level += 2)
                    UNROLLED
                    for (int step = 0; step < 2; step++)
                        UNROLLED
                        for (int w = 0; w < WALKS; w++) at[w] = next(at[w], node[at[w]], x + w * STRIDE);
                uint64_t any = 0;
                if (!QUEUE) do {
                    UNROLLED
                    for (int level = 0; level < PASS; level++) {
                        any = 0;
                        UNROLLED
                        for (int w = 0; w < WALKS; w++) {
                            Slot slot = node[at[w]];
                            any |= offset(slot);
                            at[w] = next(at[w], slot, x + w * STRIDE);
                        }
                    }
                } while (any);
                UNROLLED
                for (int w = 0; w < WALKS; w++) {
                    reached[row + w] = at[w];
                    if (QUEUE) {
                        queue[0][waiting] = row + w;
                        waiting += offset(node[at[w]]) != 0;
                    }
                }
            }
            for (int from = 0; waiting; from ^= 1) {
                const int32_t *in = queue[from];
                int32_t *still = queue[from ^ 1];
                /* The last block walks one row several times. */
                for (int w = 0; w < WALKS; w++) queue[from][waiting + w] = in[waiting - 1];
                long count = waiting, last;
                waiting = 0;
                ROLLED
                for (long i = 0; i < count; i += 8) {
                    uint64_t at[8];
                    const float *x[8];
                    UNROLLED
                    for (int w = 0; w < 8; w++) {
                        at[w] = reached[in[i + w]];
                        x[w] = tile + (long)in[i + w] * STRIDE;
                    }
                    UNROLLED
                    for (int level = 0; level < PASS; level++)
                        UNROLLED
                        for (int w = 0; w < 8; w++) at[w] = next(at[w], node[at[w]], x[w]);
                    last = waiting;
                    UNROLLED
                    for (int w = 0; w < 8; w++) {
                        reached[in[i + w]] = at[w];
                        still[waiting] = in[i + w];
                        waiting += offset(node[at[w]]) != 0;
                    }
                }
                while (waiting > last + 1 && still[waiting - 1] == still[waiting - 2]) waiting--;
            }
            for (int i = 0; i < TILE; i++) out[i] += node[reached[i]].threshold;
        }
    }
}
