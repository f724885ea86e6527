/* Calls: blocks of rows through kernels and epilogues, on one or several threads. */
#define _GNU_SOURCE
#include <string.h>

#include "executor/clock.h"
#include "executor/internal.h"
#include "executor/rows.h"

/* Rows are checked in blocks of this size just before they are computed, so that computing finds them in the cache.
 * Smaller calls are checked for missing values at once. */
#define LOOK_BYTES (1 << 18)
#define LARGE_BYTES (1 << 22)

/* Bytes of a piece of rows that threads look at for missing values. */
#define PIECE_BYTES (1 << 17)

/* Minimal work to share, and minimal work of a chunk; nanoseconds. */
#define SHARED_NANOSECONDS 12000
#define PIECE_NANOSECONDS 4000

/* Untimed kernels run multi-threaded from this many rows. */
#define MANY_ROWS 2048

static double number(int64_t type, const char *score) {
  return type == HBTVM_F32 ? (double)*(const float *)score : *(const double *)score;
}

/* Return whether the scores show that all values of their rows were finite. */
static int tells_finite(const struct model *model, int64_t type, const void *scores, int64_t outputs, int64_t n) {
  if (model->telling == HBTVM_BY_SCORES) return !hbtvm_kinds(type, scores, n * outputs);
  /* Sums of four rows: each addition to a single sum waits for the one before. */
  double sums[4] = {0};
  const char *score = (const char *)scores + model->telling_column * item_bytes(type);
  int64_t step = outputs * item_bytes(type), r = 0;
  for (; r + 4 <= n; r += 4, score += 4 * step) {
    for (int k = 0; k < 4; ++k) sums[k] += number(type, score + k * step);
  }
  for (; r < n; ++r, score += step) sums[0] += number(type, score);
  double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return sum - sum == 0;
}

/* Return whether the results are the kernels' scores, all of them and in their type. */
static int is_plain(const struct run *run, const struct bound *bound) {
  const struct model *model = run->executor->model;
  if (!run->bare && (model->base || model->divisor != 1.0)) return 0;
  int64_t type = run->epilogue ? run->epilogue->type : HBTVM_F64;
  if (type != bound->kernel->type) return 0;
  if (!run->epilogue) return 1;
  return run->epilogue->plain && run->epilogue->first == 0 && run->epilogue->last == bound->outputs;
}

/* Convert float32 scores to float64. */
static double *widened(struct worker *worker, const float *scores, int64_t count) {
  double *wide = hbtvm_memory(worker, MATRIX_MEMORY, (size_t)count * sizeof *wide);
  for (int64_t i = 0; wide && i < count; ++i) wide[i] = scores[i];
  return wide;
}

/* Return whether the rows themselves are checked for refused values. */
static int looks_by_rows(const struct run *run) {
  const struct model *model = run->executor->model;
  return model->refuses && model->telling == HBTVM_BY_ROWS && !run->bare;
}

/* Return whether a kernel's blocks are checked for missing values, which another kernel takes. */
static int looks_for_missing(const struct run *run, const struct bound *bound) {
  return bound->instead >= 0 && run->has_missing < 0;
}

/* One part of the trees of a block. */
struct share {
  struct run *run;
  const struct bound *bound;
  const char *rows;
  int64_t n;
  double *sums; /* of all parts, consecutively */
};

static void run_part(void *context, int64_t part) {
  struct share *share = context;
  struct executor *executor = share->run->executor;
  struct worker *worker = hbtvm_take(executor);
  struct call *call = worker ? hbtvm_bound_call(executor, worker, share->bound, part) : NULL;
  int64_t outputs = share->bound->outputs;
  int status = HBTVM_NO_MEMORY;
  if (call) {
    double *sums = share->sums + part * share->n * outputs;
    status = hbtvm_kernel_rows(worker, call, share->bound, share->rows, share->n, sums, outputs);
  }
  if (worker) hbtvm_give(executor, worker);
  if (status) hbtvm_fail(share->run, status, 0, 0);
}

/* Compute the scores of a block of rows; `finite` becomes 1 if the kernel showed that all values are. */
static int compute(struct run *run, struct worker *worker, const struct bound *bound, const char *rows, int64_t n,
                   void *scores, int *finite) {
  if (bound->parts == 1) {
    struct call *call = hbtvm_bound_call(run->executor, worker, bound, 0);
    if (!call) return HBTVM_NO_MEMORY;
    call->shown = 0;
    int status = hbtvm_kernel_rows(worker, call, bound, rows, n, scores, bound->outputs);
    *finite = call->shown * bound->kernel->row_tile >= n;
    return status;
  }
  int64_t count = n * bound->outputs;
  double *sums = hbtvm_memory(worker, MATRIX_MEMORY, (size_t)(bound->parts * count) * sizeof *sums);
  if (!sums) return HBTVM_NO_MEMORY;
  struct share share = {run, bound, rows, n, sums};
  hbtvm_pool_run(run->executor->pool, run_part, &share, bound->parts, run->threads);
  if (atomic_load(&run->status)) return atomic_load(&run->status);
  /* In a fixed order, so that the last bit does not depend on timing. */
  double *total = scores;
  memcpy(total, sums, (size_t)count * sizeof *sums);
  for (int64_t part = 1; part < bound->parts; ++part) {
    sums += count;
    for (int64_t i = 0; i < count; ++i) total[i] += sums[i];
  }
  return HBTVM_OK;
}

static void run_block(struct run *run, struct worker *worker, const struct bound *bound, int64_t first, int64_t n) {
  const struct model *model = run->executor->model;
  const char *rows = run->rows + first * run->row_bytes;
  char *out = run->out + first * run->out_bytes;
  int64_t values = n * model->columns;
  int by_rows = looks_by_rows(run), for_missing = looks_for_missing(run, bound);
  int replaced = bound->instead >= 0 && run->has_missing == 1;
  if (by_rows || for_missing) {
    int kinds = hbtvm_kinds(run->type, rows, values);
    if (by_rows && (kinds & run->executor->refused) && !hbtvm_allowed(run, first, n)) return;
    if (for_missing) replaced = kinds & HBTVM_REFUSES_NAN;
  }
  if (replaced) bound = &run->set->bound[bound->instead];
  int64_t type = bound->kernel->type, count = n * bound->outputs;
  int plain = is_plain(run, bound);
  void *scores = plain ? out : hbtvm_memory(worker, SCORES_MEMORY, (size_t)(count * item_bytes(type)));
  int finite = 0;
  int status = scores ? compute(run, worker, bound, rows, n, scores, &finite) : HBTVM_NO_MEMORY;
  if (status) {
    hbtvm_fail(run, status, first, 0);
    return;
  }
  if (model->refuses && model->telling != HBTVM_BY_ROWS && !run->bare && !finite) {
    if (!tells_finite(model, type, scores, bound->outputs, n) && !hbtvm_allowed(run, first, n)) return;
  }
  if (plain) return;
  double *sums = type == HBTVM_F64 ? scores : widened(worker, scores, count);
  if (sums) {
    hbtvm_conclude(run, sums, first, n);
  } else {
    hbtvm_fail(run, HBTVM_NO_MEMORY, first, 0);
  }
}

/* Return the rows per block within a thread, which do not depend on the number of threads. */
static int64_t block_rows(const struct run *run, const struct bound *bound) {
  int looks = looks_by_rows(run) || looks_for_missing(run, bound);
  if (!looks && bound->parts == 1 && is_plain(run, bound)) return run->n;
  int64_t bytes = 8 * bound->outputs * bound->parts, rows = HBTVM_BLOCK_BYTES / bytes;
  if (looks) rows = smaller(rows, LOOK_BYTES / run->row_bytes);
  return larger(1, rows / bound->aligned_rows) * bound->aligned_rows;
}

static void run_rows(struct run *run, struct worker *worker, int64_t first, int64_t stop) {
  int64_t block = block_rows(run, run->bound);
  for (; first < stop && !atomic_load_explicit(&run->status, memory_order_relaxed); first += block) {
    run_block(run, worker, run->bound, first, smaller(block, stop - first));
  }
}

/* Record the time of a row tile on one thread. */
static void measured(struct bound *bound, int64_t nanoseconds, int64_t rows) {
  int64_t one = larger(1, nanoseconds / quotient_up(rows, bound->kernel->row_tile));
  int64_t known = atomic_load_explicit(&bound->nanoseconds, memory_order_relaxed);
  if (!known || one < known) atomic_store_explicit(&bound->nanoseconds, one, memory_order_relaxed);
}

static void run_chunk(void *context, int64_t i) {
  struct run *run = context;
  int64_t first = run->start + i * run->chunk, stop = smaller(run->stop, first + run->chunk);
  if (atomic_load_explicit(&run->status, memory_order_relaxed)) return;
  struct worker *worker = hbtvm_take(run->executor);
  if (!worker) {
    hbtvm_fail(run, HBTVM_NO_MEMORY, first, 0);
    return;
  }
  int fresh = !atomic_load_explicit(&run->bound->nanoseconds, memory_order_relaxed);
  int64_t since = fresh ? nanoseconds_now() : 0;
  run_rows(run, worker, first, stop);
  if (fresh) measured(run->bound, nanoseconds_now() - since, stop - first);
  hbtvm_give(run->executor, worker);
}

/* Return the row tiles of a chunk if threads share a step; 0 otherwise. */
static int64_t chunk_tiles(const struct run *run, int64_t threads) {
  struct bound *bound = run->bound;
  const struct kernel *kernel = bound->kernel;
  int64_t rows = run->stop - run->start, tiles = quotient_up(rows, kernel->row_tile);
  if (threads < 2 || tiles < 2 || rows <= bound->alone) return 0;
  int64_t grain = larger(1, kernel->grain);
  int64_t nanoseconds = atomic_load_explicit(&bound->nanoseconds, memory_order_relaxed);
  if (!nanoseconds && bound->tuned > 0) nanoseconds = larger(1, (int64_t)(bound->tuned * 1e9));
  if (nanoseconds) {
    if (tiles * nanoseconds < SHARED_NANOSECONDS) return 0;
    grain = larger(grain, quotient_up(PIECE_NANOSECONDS, nanoseconds));
  } else if (rows < MANY_ROWS) {
    return 0;
  }
  int64_t chunks = smaller(tiles / grain, HBTVM_CHUNKS_PER_THREAD * threads);
  return chunks < 2 ? 0 : quotient_up(tiles, chunks);
}

static void run_step(struct run *run) {
  struct bound *bound = run->bound;
  int64_t threads = smaller(run->threads, bound->threads), rows = run->stop - run->start;
  int64_t tiles = bound->parts > 1 ? 0 : chunk_tiles(run, threads);
  if (tiles) {
    run->chunk = tiles * bound->kernel->row_tile;
    int64_t block = block_rows(run, bound), unit = run->has_missing < 0 ? block : bound->aligned_rows;
    if (run->chunk >= 8 * unit || run->has_missing < 0) run->chunk = quotient_up(run->chunk, unit) * unit;
    hbtvm_pool_run(run->executor->pool, run_chunk, run, quotient_up(rows, run->chunk), threads);
    return;
  }
  struct worker *worker = hbtvm_take(run->executor);
  if (!worker) {
    hbtvm_fail(run, HBTVM_NO_MEMORY, 0, 0);
    return;
  }
  int64_t since = threads > 1 && rows > 1 ? nanoseconds_now() : 0;
  run_rows(run, worker, run->start, run->stop);
  if (since) measured(bound, nanoseconds_now() - since, rows);
  hbtvm_give(run->executor, worker);
}

/* A look at the values of a call's rows, a piece at a time. */
struct look {
  const struct run *run;
  int64_t rows; /* of a piece */
  _Atomic int kinds;
};

static void look_at(void *context, int64_t i) {
  struct look *look = context;
  const struct run *run = look->run;
  int64_t first = i * look->rows, n = smaller(look->rows, run->n - first);
  atomic_fetch_or(&look->kinds, hbtvm_kinds(run->type, run->rows + first * run->row_bytes,
                                            n * run->executor->model->columns));
}

/* Return which values the rows of a call have that kernels may refuse; threads share the look at many values. */
static int kinds_of(const struct run *run, int64_t threads) {
  struct look look = {.run = run, .rows = larger(1, PIECE_BYTES / larger(1, run->row_bytes))};
  int64_t pieces = quotient_up(run->n, look.rows);
  if (threads < 2 || pieces < 3) {
    look.rows = run->n;
    look_at(&look, 0);
  } else {
    hbtvm_pool_run(run->executor->pool, look_at, &look, pieces, threads);
  }
  return atomic_load(&look.kinds);
}

static void run_steps(struct run *run) {
  struct plan_step steps[HBTVM_STEPS];
  int64_t count = hbtvm_plan(run->set, run->n, steps);
  run->has_missing = 0;
  for (int64_t i = 0; i < count; ++i) {
    const struct bound *bound = &run->set->bound[steps[i].kernel];
    if (bound->instead < 0) continue;
    run->has_missing = -1;
    if (run->n * run->row_bytes < LARGE_BYTES) {
      run->has_missing = kinds_of(run, smaller(run->threads, bound->threads)) & HBTVM_REFUSES_NAN;
    }
    break; /* steps share the answer */
  }
  for (int64_t i = 0; i < count && !atomic_load(&run->status); ++i) {
    run->bound = &run->set->bound[steps[i].kernel];
    run->start = steps[i].start;
    run->stop = steps[i].stop;
    run_step(run);
  }
}

static int begin(struct run *run, struct executor *executor, int64_t type, const void *rows, int64_t n, void *out,
                 int64_t threads) {
  const struct model *model = executor->model;
  if (n < 0 || (type != HBTVM_F32 && type != HBTVM_F64) || (n && (!rows || !out))) return HBTVM_BAD_ARGUMENT;
  run->executor = executor;
  run->type = type;
  run->rows = rows;
  run->n = n;
  run->row_bytes = model->columns * item_bytes(type);
  run->out = out;
  run->out_bytes = run->epilogue ? run->epilogue->row_bytes : 8 * model->stages[model->count - 1].outputs;
  run->threads = threads > 0 ? smaller(threads, executor->threads) : executor->threads;
  atomic_flag_clear(&run->placing);
  if (model->count > 1) {
    hbtvm_run_stages(run);
    return atomic_load(&run->status);
  }
  run->set = hbtvm_set(executor, 0, type);
  if (!run->set) return HBTVM_NO_KERNEL;
  if (n) run_steps(run);
  return atomic_load(&run->status);
}

int hbtvm_run(struct executor *executor, const struct epilogue *epilogue, int64_t type, const void *rows, int64_t n,
              void *out, int64_t threads, struct place *place) {
  struct run run = {.epilogue = epilogue};
  int status = begin(&run, executor, type, rows, n, out, threads);
  if (status && place) *place = run.place;
  return status;
}

int hbtvm_sums(struct executor *executor, int64_t type, const void *rows, int64_t n, double *out, int64_t threads) {
  struct run run = {.bare = 1};
  return begin(&run, executor, type, rows, n, out, threads);
}
