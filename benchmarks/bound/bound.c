/* Forests by hand: AVX-512 intrinsics, one shape each, nothing general. What they take is the bound that kernels are
 * held against.
 *
 * Rows come row by row, 28 columns of float; scores go out as doubles. A block of 64 rows is transposed first. All
 * numbers of a tree lie one behind the other, nodes in the order of their levels.
 */
#include <immintrin.h>
#include <stdint.h>

#define COLUMNS 28
#define ROWS 64
#define VECTORS 4

static void transpose(const float *rows, float columns[COLUMNS][ROWS]) {
  for (int r = 0; r < ROWS; ++r) {
    for (int c = 0; c < COLUMNS; ++c) columns[c][r] = rows[r * COLUMNS + c];
  }
}

static void add(double *scores, __m512 sums) {
  __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(sums));
  __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(sums, 1));
  _mm512_storeu_pd(scores, _mm512_add_pd(_mm512_loadu_pd(scores), low));
  _mm512_storeu_pd(scores + 8, _mm512_add_pd(_mm512_loadu_pd(scores + 8), high));
}

static inline __mmask16 above(const float *column, __m512 threshold) {
  return _mm512_cmp_ps_mask(_mm512_load_ps(column), threshold, _CMP_NLE_UQ);
}

/* 31 leaves: each of 30 nodes that is false takes the leaves of its left side out of a word; the lowest bit that is
 * left is the leaf. `summed` trees are added up in float, as kernels do. */
void leaves31(const float *rows, int64_t n, int64_t trees, const int32_t *feature, const float *threshold,
              const int32_t *mask, const float *value, double *scores, int64_t summed) {
  static _Thread_local float x[COLUMNS][ROWS] __attribute__((aligned(64)));
  for (int64_t start = 0; start < n; start += ROWS) {
    transpose(rows + start * COLUMNS, x);
    for (int r = 0; r < ROWS; ++r) scores[start + r] = 0;
    for (int64_t first = 0; first < trees; first += summed) {
      __m512 sums[VECTORS] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
      for (int64_t t = first; t < first + summed && t < trees; ++t) {
        __m512i w0 = _mm512_set1_epi32(-1), w1 = w0, w2 = w0, w3 = w0;
#pragma GCC unroll 30
        for (int node = 0; node < 30; ++node) {
          const float *column = x[feature[t * 30 + node]];
          __m512 at = _mm512_set1_ps(threshold[t * 30 + node]);
          __m512i kept = _mm512_set1_epi32(mask[t * 30 + node]);
          w0 = _mm512_mask_and_epi32(w0, above(column, at), w0, kept);
          w1 = _mm512_mask_and_epi32(w1, above(column + 16, at), w1, kept);
          w2 = _mm512_mask_and_epi32(w2, above(column + 32, at), w2, kept);
          w3 = _mm512_mask_and_epi32(w3, above(column + 48, at), w3, kept);
        }
        __m512i word[VECTORS] = {w0, w1, w2, w3};
        __m512 low = _mm512_loadu_ps(value + t * 32), high = _mm512_loadu_ps(value + t * 32 + 16);
        for (int v = 0; v < VECTORS; ++v) {
          __m512i lowest = _mm512_and_epi32(word[v], _mm512_sub_epi32(_mm512_setzero_epi32(), word[v]));
          __m512i leaf = _mm512_sub_epi32(_mm512_set1_epi32(31), _mm512_lzcnt_epi32(lowest));
          sums[v] = _mm512_add_ps(sums[v], _mm512_permutex2var_ps(low, leaf, high));
        }
      }
      for (int v = 0; v < VECTORS; ++v) add(scores + start + 16 * v, sums[v]);
    }
  }
}

/* Values of the columns `feature` of 16 rows. */
static __m512 values(const float *x, __m512i feature, __m512i lane) {
  return _mm512_i32gather_ps(_mm512_add_epi32(_mm512_slli_epi32(feature, 6), lane), x, 4);
}

static __m512i next(__m512i at, __m512 x, __m512 threshold) {
  __mmask16 right = _mm512_cmp_ps_mask(x, threshold, _CMP_NLE_UQ);
  at = _mm512_add_epi32(at, at);
  return _mm512_mask_add_epi32(at, right, at, _mm512_set1_epi32(1));
}

/* Perfect trees of depth 8: the first three levels by comparing all their nodes, the next three by permutes, the last
 * two by gathers. `at` is the position of a row's node within its level. */
void depth8(const float *rows, int64_t n, int64_t trees, const int32_t *feature, const float *threshold,
            const int32_t *unused, const float *value, double *scores, int64_t summed) {
  static _Thread_local float x[COLUMNS][ROWS] __attribute__((aligned(64)));
  (void)unused;
  __m512i lane[VECTORS];
  for (int v = 0; v < VECTORS; ++v) {
    lane[v] = _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                               _mm512_set1_epi32(16 * v));
  }
  for (int64_t start = 0; start < n; start += ROWS) {
    transpose(rows + start * COLUMNS, x);
    for (int r = 0; r < ROWS; ++r) scores[start + r] = 0;
    for (int64_t first = 0; first < trees; first += summed) {
      __m512 sums[VECTORS] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
      for (int64_t t = first; t < first + summed && t < trees; ++t) {
        const int32_t *f = feature + t * 255;
        const float *h = threshold + t * 255;
        __m512i at[VECTORS];
        for (int v = 0; v < VECTORS; ++v) {
          __mmask16 k[7];
          for (int node = 0; node < 7; ++node) {
            k[node] = _mm512_cmp_ps_mask(_mm512_load_ps(x[f[node]] + 16 * v), _mm512_set1_ps(h[node]), _CMP_NLE_UQ);
          }
          __mmask16 second = (__mmask16)((k[0] & k[2]) | (~k[0] & k[1]));
          __mmask16 left = (__mmask16)((k[1] & k[4]) | (~k[1] & k[3])), right = (__mmask16)((k[2] & k[6]) | (~k[2] & k[5]));
          __mmask16 third = (__mmask16)((k[0] & right) | (~k[0] & left));
          __m512i found = _mm512_maskz_set1_epi32(k[0], 4);
          found = _mm512_mask_add_epi32(found, second, found, _mm512_set1_epi32(2));
          at[v] = _mm512_mask_add_epi32(found, third, found, _mm512_set1_epi32(1));
        }
        __m512 h3 = _mm512_loadu_ps(h + 7), h4 = _mm512_loadu_ps(h + 15), h5 = _mm512_loadu_ps(h + 31);
        __m512 h5b = _mm512_loadu_ps(h + 47);
        __m512i f3 = _mm512_loadu_si512(f + 7), f4 = _mm512_loadu_si512(f + 15), f5 = _mm512_loadu_si512(f + 31);
        __m512i f5b = _mm512_loadu_si512(f + 47);
        for (int v = 0; v < VECTORS; ++v) {
          __m512 seen = values(x[0], _mm512_permutexvar_epi32(at[v], f3), lane[v]);
          at[v] = next(at[v], seen, _mm512_permutexvar_ps(at[v], h3));
        }
        for (int v = 0; v < VECTORS; ++v) {
          __m512 seen = values(x[0], _mm512_permutexvar_epi32(at[v], f4), lane[v]);
          at[v] = next(at[v], seen, _mm512_permutexvar_ps(at[v], h4));
        }
        for (int v = 0; v < VECTORS; ++v) {
          __m512 seen = values(x[0], _mm512_permutex2var_epi32(f5, at[v], f5b), lane[v]);
          at[v] = next(at[v], seen, _mm512_permutex2var_ps(h5, at[v], h5b));
        }
        for (int level = 63; level <= 127; level += 64) {
          for (int v = 0; v < VECTORS; ++v) {
            __m512 seen = values(x[0], _mm512_i32gather_epi32(at[v], f + level, 4), lane[v]);
            at[v] = next(at[v], seen, _mm512_i32gather_ps(at[v], h + level, 4));
          }
        }
        for (int v = 0; v < VECTORS; ++v) {
          sums[v] = _mm512_add_ps(sums[v], _mm512_i32gather_ps(at[v], value + t * 256, 4));
        }
      }
      for (int v = 0; v < VECTORS; ++v) add(scores + start + 16 * v, sums[v]);
    }
  }
}

/* The same values lane by lane: on many CPUs faster than a gather. */
static __m512 loaded(const float *x, __m512i feature, __m512i lane) {
  int32_t at[16] __attribute__((aligned(64)));
  float found[16] __attribute__((aligned(64)));
  _mm512_store_si512(at, _mm512_add_epi32(_mm512_slli_epi32(feature, 6), lane));
  for (int i = 0; i < 16; ++i) found[i] = x[at[i]];
  return _mm512_load_ps(found);
}

/* Entries of a table of 16, 32, 64 or 128 words. */
static inline __m512i entries(const int32_t *table, int count, __m512i at) {
  __m512i a = _mm512_loadu_si512(table);
  if (count == 16) return _mm512_permutexvar_epi32(at, a);
  __m512i found = _mm512_permutex2var_epi32(a, at, _mm512_loadu_si512(table + 16));
  if (count == 32) return found;
  __m512i upper = _mm512_permutex2var_epi32(_mm512_loadu_si512(table + 32), at, _mm512_loadu_si512(table + 48));
  found = _mm512_mask_mov_epi32(found, _mm512_test_epi32_mask(at, _mm512_set1_epi32(32)), upper);
  if (count == 64) return found;
  __m512i third = _mm512_permutex2var_epi32(_mm512_loadu_si512(table + 64), at, _mm512_loadu_si512(table + 80));
  __m512i fourth = _mm512_permutex2var_epi32(_mm512_loadu_si512(table + 96), at, _mm512_loadu_si512(table + 112));
  third = _mm512_mask_mov_epi32(third, _mm512_test_epi32_mask(at, _mm512_set1_epi32(32)), fourth);
  return _mm512_mask_mov_epi32(found, _mm512_test_epi32_mask(at, _mm512_set1_epi32(64)), third);
}

/* Perfect trees of depth 8: four levels by comparing all their nodes, four by permutes, values lane by lane. */
void depth8_loads(const float *rows, int64_t n, int64_t trees, const int32_t *feature, const float *threshold,
                  const int32_t *unused, const float *value, double *scores, int64_t summed) {
  static _Thread_local float x[COLUMNS][ROWS] __attribute__((aligned(64)));
  (void)unused;
  __m512i first_lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int64_t start = 0; start < n; start += ROWS) {
    transpose(rows + start * COLUMNS, x);
    for (int r = 0; r < ROWS; ++r) scores[start + r] = 0;
    for (int64_t first = 0; first < trees; first += summed) {
      __m512 sums[VECTORS] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
      for (int64_t t = first; t < first + summed && t < trees; ++t) {
        const int32_t *f = feature + t * 255;
        const float *h = threshold + t * 255;
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) {
          __m512i lane = _mm512_add_epi32(first_lane, _mm512_set1_epi32(16 * v));
          uint32_t k[15];
#pragma GCC unroll 15
          for (int node = 0; node < 15; ++node) k[node] = above(x[f[node]] + 16 * v, _mm512_set1_ps(h[node]));
          uint32_t a = k[0], b = (a & k[2]) | (~a & k[1]);
          uint32_t c = (a & ((b & k[6]) | (~b & k[5]))) | (~a & ((b & k[4]) | (~b & k[3])));
          uint32_t right = (b & ((c & k[14]) | (~c & k[13]))) | (~b & ((c & k[12]) | (~c & k[11])));
          uint32_t left = (b & ((c & k[10]) | (~c & k[9]))) | (~b & ((c & k[8]) | (~c & k[7])));
          uint32_t d = (a & right) | (~a & left);
          __m512i at = _mm512_maskz_set1_epi32((__mmask16)a, 8);
          at = _mm512_mask_add_epi32(at, (__mmask16)b, at, _mm512_set1_epi32(4));
          at = _mm512_mask_add_epi32(at, (__mmask16)c, at, _mm512_set1_epi32(2));
          at = _mm512_mask_add_epi32(at, (__mmask16)d, at, _mm512_set1_epi32(1));
#pragma GCC unroll 4
          for (int level = 16; level <= 128; level += level) {
            __m512 seen = loaded(x[0], entries(f + level - 1, level, at), lane);
            at = next(at, seen, _mm512_castsi512_ps(entries((const int32_t *)h + level - 1, level, at)));
          }
          sums[v] = _mm512_add_ps(sums[v], loaded(value + t * 256, _mm512_setzero_si512(), at));
        }
      }
      for (int v = 0; v < VECTORS; ++v) add(scores + start + 16 * v, sums[v]);
    }
  }
}
