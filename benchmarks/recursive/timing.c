/* What has to be timed without Python in between: reading of memory, and the linearizer. */
#include <math.h>
#include <stdint.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { SUMS = 128 };

/* Seconds in which each of `threads` threads reads its share of n numbers once, on average over `passes`. */
double read_seconds(const float *x, int64_t n, int64_t passes, int64_t threads) {
  float all = 0;
  double longest = 0;
#pragma omp parallel for num_threads((int)threads) schedule(static, 1) reduction(+ : all) reduction(max : longest)
  for (int64_t thread = 0; thread < threads; thread++) {
    /* Several sums in registers, so that additions do not wait for one another. */
    float sums[SUMS] = {0};
    const int64_t blocks = n / SUMS, first = blocks * thread / threads, end = blocks * (thread + 1) / threads;
    double start = 0;
    /* The first pass brings the share to the core's own cache. */
    for (int64_t pass = 0; pass <= passes; pass++) {
      if (pass == 1) start = now();
      for (int64_t i = first; i < end; i++)
        for (int j = 0; j < SUMS; j++) sums[j] += x[i * SUMS + j];
      /* Or the compiler might take all passes for one. */
      __asm__ volatile("" : : "r"(sums), "r"(x) : "memory");
    }
    longest = fmax(longest, now() - start);
    for (int j = 0; j < SUMS; j++) all += sums[j];
  }
  volatile float sink = all;
  (void)sink;
  return longest / (double)passes;
}

typedef int64_t levels_function(void *, const void *, int32_t *, int32_t *, void *);

/* Seconds of a call of hbtvm_recursive_levels, on average over `calls`; NaN if it refuses the structures. */
double levels_seconds(levels_function *function, void *model, const void *batch, int32_t *row, int32_t *start,
                      void *place, int64_t calls) {
  if (function(model, batch, row, start, place) < 0) return NAN;
  const double began = now();
  for (int64_t i = 0; i < calls; i++) function(model, batch, row, start, place);
  return (now() - began) / (double)calls;
}
