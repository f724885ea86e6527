/* Models of several stages: each block of rows goes through all stages before the next block starts.
 *
 * All kernels read columns of one float64 matrix: first the rows, then each stage's outputs. A block's matrix fits in
 * the cache. Blocks do not depend on the number of threads, and their numbers of rows determine the kernels.
 */
#include "executor/internal.h"
#include "executor/rows.h"

/* Minimal rows of a block to share; threads share pieces of the block. */
#define PIECES 4
#define LEAST_PIECE 16

/* A matrix of some rows. */
struct matrix {
  const char *rows;
  double *values;
  int64_t n;
  int64_t plan; /* rows of the block, which determine the kernels */
  int64_t first; /* index in the block of the first of these rows */
};

/* The input of a stage: the rows themselves, or columns of the matrix in its kernels' type. */
static const void *read_columns(struct run *run, struct worker *worker, const struct matrix *m, int64_t s,
                                const struct bound_set **set) {
  struct executor *executor = run->executor;
  const struct model *model = executor->model;
  const struct stage *stage = &model->stages[s];
  int rows_alone = 1, in_order = 1;
  for (int64_t i = 0; i < stage->read; ++i) {
    rows_alone &= stage->columns[i] < model->columns;
    in_order &= stage->columns[i] == i;
  }
  /* Outputs of stages are float64. */
  const struct bound_set *wide = hbtvm_set(executor, s, HBTVM_F64);
  if (!wide) wide = hbtvm_set(executor, s, HBTVM_F32);
  *set = rows_alone ? hbtvm_set(executor, s, run->type) : NULL;
  if (!*set) *set = wide;
  if (!*set) return NULL;
  int64_t type = (*set)->type;
  if (rows_alone && in_order && stage->read == model->columns && type == run->type) return m->rows;
  void *to = hbtvm_memory(worker, GATHER_MEMORY, (size_t)(m->n * stage->read * item_bytes(type)));
  if (!to) return NULL;
  if (rows_alone) {
    hbtvm_gather(m->rows, run->type, model->columns, stage->columns, stage->read, m->n, to, type, stage->read);
  } else {
    hbtvm_gather(m->values, HBTVM_F64, executor->width, stage->columns, stage->read, m->n, to, type, stage->read);
  }
  return to;
}

/* Compute a stage's sums, `stride` elements from one row to the next. */
static int run_stage(struct run *run, struct worker *worker, const struct matrix *m, int64_t s, double *sums,
                     int64_t stride) {
  const struct bound_set *set;
  const char *rows = read_columns(run, worker, m, s, &set);
  if (!rows) return set ? HBTVM_NO_MEMORY : HBTVM_NO_KERNEL;
  struct plan_step steps[HBTVM_STEPS];
  int64_t count = hbtvm_plan(set, m->plan, steps);
  for (int64_t i = 0; i < count; ++i) {
    int64_t start = larger(steps[i].start, m->first) - m->first;
    int64_t stop = smaller(steps[i].stop, m->first + m->n) - m->first;
    if (start >= stop) continue;
    const struct bound *bound = &set->bound[steps[i].kernel];
    struct call *call = hbtvm_bound_call(run->executor, worker, bound, 0);
    if (!call) return HBTVM_NO_MEMORY;
    int64_t row_bytes = bound->columns * item_bytes(set->type);
    int status = hbtvm_kernel_rows(worker, call, bound, rows + start * row_bytes, stop - start, sums + start * stride,
                                   stride);
    if (status) return status;
  }
  return HBTVM_OK;
}

static int run_piece(struct run *run, struct worker *worker, int64_t first, int64_t n, int64_t plan, int64_t within) {
  struct executor *executor = run->executor;
  const struct model *model = executor->model;
  int64_t width = executor->width, last = model->count - 1, outputs = model->stages[last].outputs;
  const char *rows = run->rows + first * run->row_bytes;
  int refused = run->bare ? 0 : executor->refused;
  if (refused && (refused & hbtvm_kinds(run->type, rows, n * model->columns))) {
    if (!hbtvm_allowed(run, first, n)) return HBTVM_OK;
  }
  double *values = hbtvm_memory(worker, MATRIX_MEMORY, (size_t)(n * width) * sizeof *values);
  double *sums = hbtvm_memory(worker, SCORES_MEMORY, (size_t)(n * outputs) * sizeof *sums);
  if (!values || !sums) return HBTVM_NO_MEMORY;
  struct matrix matrix = {rows, values, n, plan, within};
  hbtvm_gather(rows, run->type, model->columns, NULL, model->columns, n, values, HBTVM_F64, width);
  int64_t end = model->columns;
  for (int64_t s = 0; s < last; ++s) {
    int status = run_stage(run, worker, &matrix, s, values + end, width);
    if (status) return status;
    end += model->stages[s].outputs;
  }
  int status = run_stage(run, worker, &matrix, last, sums, outputs);
  if (!status) hbtvm_conclude(run, sums, first, n);
  return status;
}

static void run_block(void *context, int64_t i) {
  struct run *run = context;
  int64_t first = i * run->chunk, n = smaller(run->chunk, run->n - first), block = run->executor->block;
  int64_t start = first - first % block, plan = smaller(block, run->n - start);
  if (atomic_load_explicit(&run->status, memory_order_relaxed)) return;
  struct worker *worker = hbtvm_take(run->executor);
  int status = worker ? run_piece(run, worker, first, n, plan, first - start) : HBTVM_NO_MEMORY;
  if (status) hbtvm_fail(run, status, first, 0);
  if (worker) hbtvm_give(run->executor, worker);
}

void hbtvm_run_stages(struct run *run) {
  if (!run->n) return;
  run->chunk = run->executor->block;
  if (run->n <= run->chunk && run->threads > 1) {
    run->chunk = smaller(run->chunk, larger(LEAST_PIECE, quotient_up(run->n, PIECES * run->threads)));
  }
  hbtvm_pool_run(run->executor->pool, run_block, run, quotient_up(run->n, run->chunk), run->threads);
}
