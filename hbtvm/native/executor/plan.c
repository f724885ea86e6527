#include "executor/plan.h"

/* Seconds to share a call with spinning threads, and seconds of a call besides the kernel. */
#define HANDOFF 3e-6
#define CALL 5e-7

static int64_t tiles_of(const struct bound *bound, int64_t n) {
  return (n + bound->kernel->row_tile - 1) / bound->kernel->row_tile;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t hbtvm_busy(const struct bound *bound, int64_t n) {
  const struct kernel *kernel = bound->kernel;
  if (kernel->over == HBTVM_OVER_TREES) return bound->parts;
  int64_t grain = kernel->grain > 0 ? kernel->grain : 1, tiles = tiles_of(bound, n);
  if (n <= bound->alone || tiles < 2 * grain) return 1;
  return least(bound->threads, tiles / grain);
}

/* Seconds of a row tile on one thread, from the timed call, which cannot have been all overhead. */
static double tile_seconds(const struct bound *bound) {
  const struct kernel *kernel = bound->kernel;
  if (kernel->seconds < 0) return -1;
  int64_t tiles = tiles_of(bound, kernel->rows), grain = kernel->grain > 0 ? kernel->grain : 1, busy = 1;
  if (kernel->over == HBTVM_OVER_TREES) busy = bound->parts;
  if (kernel->over == HBTVM_OVER_ROWS && tiles >= 2 * grain) busy = least(kernel->threads, tiles / grain);
  double seconds = kernel->seconds - CALL - (busy > 1 ? HANDOFF : 0);
  if (seconds < kernel->seconds / 2) seconds = kernel->seconds / 2;
  return seconds * (double)busy / (double)tiles;
}

static double estimate(const struct bound *bound, int64_t n) {
  int64_t tiles = tiles_of(bound, n), busy = hbtvm_busy(bound, n);
  double work = (double)tiles * bound->tuned;
  if (bound->parts > 1) return CALL + HANDOFF + work / (double)busy;
  /* The last round may leave some threads idle. */
  double shared = HANDOFF + (double)((tiles + busy - 1) / busy) * bound->tuned;
  return CALL + (shared < work ? shared : work);
}

static int64_t difference(int64_t a, int64_t b) { return a > b ? a - b : b - a; }

/* The distance: the ratio of two numbers of rows, at least 1. */
static double apart(int64_t n, int64_t rows) {
  double ratio = (double)(n > 0 ? n : 1) / (double)rows;
  return ratio < 1 ? 1 / ratio : ratio;
}

static int64_t nearest(const struct bound_set *set, int64_t n) {
  int64_t found = set->chosen[0];
  for (int64_t i = 1; i < set->choices; ++i) {
    int64_t other = set->chosen[i];
    if (apart(n, set->bound[other].kernel->rows) < apart(n, set->bound[found].kernel->rows)) found = other;
  }
  return found;
}

/* Return the fastest kernel that was timed for exactly this many rows under these conditions; -1 if there is none. */
static int64_t timed(const struct bound_set *set, int64_t n) {
  int64_t found = -1;
  for (int64_t i = 0; i < set->choices; ++i) {
    const struct bound *bound = &set->bound[set->chosen[i]];
    const struct kernel *kernel = bound->kernel;
    if (kernel->rows != n || kernel->seconds < 0 || bound->threads != kernel->threads) continue;
    if (found < 0 || kernel->seconds < set->bound[found].kernel->seconds) found = set->chosen[i];
  }
  return found;
}

int64_t hbtvm_plan(const struct bound_set *set, int64_t n, struct plan_step steps[HBTVM_STEPS]) {
  steps[0].start = 0;
  steps[0].stop = n;
  if (n == 1 && set->one.stop == 1) {
    steps[0].kernel = set->one.kernel;
    return 1;
  }
  int64_t best = timed(set, n);
  if (best >= 0 || !set->measured || n < 1) {
    steps[0].kernel = best >= 0 ? best : nearest(set, n);
    return 1;
  }
  best = set->chosen[0];
  for (int64_t i = 1; i < set->choices; ++i) {
    if (estimate(&set->bound[set->chosen[i]], n) < estimate(&set->bound[best], n)) best = set->chosen[i];
  }
  steps[0].kernel = best;
  double cost = estimate(&set->bound[best], n);
  int64_t count = 1;
  /* One kernel for the whole tiles, and another for the rest. */
  for (int64_t i = 0; i < set->choices; ++i) {
    const struct bound *bulk = &set->bound[set->chosen[i]];
    int64_t whole = n - n % bulk->kernel->row_tile;
    if (whole == 0 || whole == n) continue;
    double first = estimate(bulk, whole);
    for (int64_t j = 0; first < cost && j < set->choices; ++j) {
      double both = first + estimate(&set->bound[set->chosen[j]], n - whole);
      if (j == i || both >= cost) continue;
      cost = both;
      steps[0] = (struct plan_step){set->chosen[i], 0, whole, 0};
      steps[1] = (struct plan_step){set->chosen[j], whole, n, 0};
      count = 2;
    }
  }
  return count;
}

void hbtvm_plan_set(struct bound_set *set) {
  int64_t complete = 0;
  for (int64_t i = 0; i < set->count; ++i) complete += !set->bound[i].kernel->takes_missing;
  set->choices = 0;
  set->measured = 1;
  for (int64_t i = 0; i < set->count; ++i) {
    struct bound *bound = &set->bound[i];
    const struct kernel *kernel = bound->kernel;
    bound->tuned = tile_seconds(bound);
    /* A kernel timed on one thread runs on one thread. */
    bound->alone = kernel->over == HBTVM_ALONE && kernel->seconds >= 0 ? kernel->rows : 0;
    bound->instead = -1;
    if (kernel->takes_missing && complete) continue;
    set->chosen[set->choices++] = i;
    if (kernel->seconds < 0) set->measured = 0;
    for (int64_t j = 0; !kernel->takes_missing && j < set->count; ++j) {
      const struct kernel *other = set->bound[j].kernel;
      if (!other->takes_missing) continue;
      int64_t distance = difference(other->rows, kernel->rows), before = INT64_MAX;
      if (bound->instead >= 0) before = difference(set->bound[bound->instead].kernel->rows, kernel->rows);
      if (distance < before) bound->instead = j;
    }
  }
  set->one.stop = 0;
  struct plan_step steps[HBTVM_STEPS];
  hbtvm_plan(set, 1, steps);
  set->one = steps[0];
}
