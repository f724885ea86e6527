/* Times the executor's thread pool: work of a known length, by one thread and shared by several. */
#define _GNU_SOURCE
#include <stddef.h>
#include <time.h>

#include "executor/pool.h"

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Keeps a CPU busy for so many seconds. */
static void busy(void *context, int64_t i) {
  (void)i;
  for (double end = now() + *(double *)context; now() < end;) continue;
}

/* Seconds that a call takes longer than the work of each thread, on average over `calls` calls.
 *
 * `work`: seconds that each of `threads` threads is kept busy. `pause`: seconds between calls; threads that sleep by
 * then have to be woken.
 */
double hand_off_seconds(int64_t threads, double work, double pause, int64_t calls) {
  struct pool *pool = hbtvm_pool_new(threads);
  if (pool == NULL) return -1.0;
  hbtvm_pool_run(pool, busy, &work, threads, threads); /* starts the threads */
  double total = 0.0;
  for (int64_t i = 0; i < calls; i++) {
    struct timespec rest = {(time_t)pause, (long)(1e9 * (pause - (double)(time_t)pause))};
    if (pause > 0.0) nanosleep(&rest, NULL);
    double start = now();
    hbtvm_pool_run(pool, busy, &work, threads, threads);
    total += now() - start - work;
  }
  hbtvm_pool_free(pool);
  return total / (double)calls;
}
