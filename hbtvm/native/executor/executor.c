/* Opening and closing of models, and the memory of their calls. */
#define _GNU_SOURCE
#include "executor/executor.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "executor/internal.h"

/* Size of a staged model's matrix for one block, and the minimal rows of a block: calls have fixed costs. */
#define MATRIX_BYTES (1 << 17)
#define LEAST_ROWS 256

static int64_t cpus(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? online : 1;
}

static const struct kernel *kernel_at(const struct kernels *set, int64_t i) { return &set->kernel[i]; }

static int64_t tuned_threads(const struct model *model) {
  int64_t most = 1;
  for (int64_t s = 0; s < model->count; ++s) {
    for (int64_t t = 0; t < model->stages[s].count; ++t) {
      const struct kernels *set = &model->stages[s].sets[t];
      for (int64_t k = 0; k < set->count; ++k) most = larger(most, kernel_at(set, k)->threads);
    }
  }
  return most;
}

static int64_t greatest_divisor(int64_t a, int64_t b) { return b ? greatest_divisor(b, a % b) : a; }

static int64_t tree_tiles(const struct kernel *kernel) {
  for (int64_t i = 0; i < kernel->count; ++i) {
    if (kernel->tables[i].splits) return kernel->tables[i].shape[0];
  }
  return 1;
}

static int bind_kernel(struct executor *executor, struct bound *bound, const struct kernel *kernel, int64_t type,
                       int64_t columns, int64_t asked) {
  bound->kernel = kernel;
  bound->columns = columns;
  bound->row_type = type;
  bound->outputs = kernel->groups * kernel->width;
  bound->threads = asked ? asked : smaller(kernel->threads, executor->threads);
  /* Stages share rows only; partial sums are float64. */
  int over_trees = kernel->over == HBTVM_OVER_TREES && executor->model->count == 1 && kernel->type == HBTVM_F64;
  bound->parts = over_trees ? larger(1, smaller(bound->threads, tree_tiles(kernel))) : 1;
  bound->direct = kernel->by_row || bound->outputs == 1 || kernel->row_tile == 1;
  int64_t tile_bytes = item_bytes(kernel->type) * bound->outputs * kernel->row_tile;
  bound->aligned_rows = kernel->row_tile * (HBTVM_ALIGNMENT / greatest_divisor(HBTVM_ALIGNMENT, tile_bytes));
  return hbtvm_bind(bound);
}

/* Count the bindings, and allocate them. */
static int make_room(struct executor *executor, const struct model *model) {
  int64_t kernels = 0, sets = 0;
  for (int64_t s = 0; s < model->count; ++s) {
    sets += model->stages[s].count;
    for (int64_t t = 0; t < model->stages[s].count; ++t) kernels += model->stages[s].sets[t].count;
  }
  executor->bounds = calloc((size_t)kernels + 1, sizeof *executor->bounds);
  executor->sets = calloc((size_t)sets + 1, sizeof *executor->sets);
  executor->first_set = calloc((size_t)model->count + 1, sizeof *executor->first_set);
  executor->first_call = calloc((size_t)kernels + 1, sizeof *executor->first_call);
  executor->numbers = calloc((size_t)kernels + 1, sizeof *executor->numbers);
  return executor->bounds && executor->sets && executor->first_set && executor->first_call && executor->numbers;
}

static int bind_all(struct executor *executor, int64_t asked) {
  const struct model *model = executor->model;
  struct bound_set *set = executor->sets;
  int64_t *chosen = executor->numbers;
  executor->width = model->columns;
  for (int64_t s = 0; s < model->count; ++s) {
    const struct stage *stage = &model->stages[s];
    executor->first_set[s] = set - executor->sets;
    for (int64_t t = 0; t < stage->count; ++t, ++set) {
      const struct kernels *given = &stage->sets[t];
      set->bound = executor->bounds + executor->kernels;
      set->count = given->count;
      set->type = given->type;
      set->chosen = chosen;
      chosen += given->count;
      for (int64_t k = 0; k < given->count; ++k) {
        struct bound *bound = &set->bound[k];
        bound->number = executor->kernels++;
        int64_t columns = model->count > 1 ? stage->read : model->columns;
        if (!bind_kernel(executor, bound, kernel_at(given, k), given->type, columns, asked)) return 0;
        executor->first_call[bound->number] = executor->calls;
        executor->calls += bound->parts;
      }
      hbtvm_plan_set(set);
    }
    if (s + 1 < model->count) executor->width += stage->outputs;
  }
  executor->first_set[model->count] = set - executor->sets;
  executor->block = larger(LEAST_ROWS, MATRIX_BYTES / (8 * executor->width));
  return 1;
}

void hbtvm_poison(struct executor *executor, int64_t on) {
  for (int64_t i = 0; i < executor->kernels; ++i) executor->bounds[i].poison = on;
}

struct executor *hbtvm_open(const struct model *model, int64_t threads) {
  if (model->version != HBTVM_EXECUTOR_VERSION) return NULL;
  struct executor *executor = calloc(1, sizeof *executor);
  if (!executor) return NULL;
  executor->model = model;
  executor->threads = threads > 0 ? threads : smaller(tuned_threads(model), cpus());
  for (int64_t c = 0; model->refuses && c < model->columns; ++c) executor->refused |= model->refuses[c];
  int64_t asked = threads > 0 ? threads : 0;
  int done = make_room(executor, model) && bind_all(executor, asked);
  if (done && executor->threads > 1) {
    executor->pool = hbtvm_pool_new(executor->threads);
    done = executor->pool != NULL;
  }
  if (done) return executor;
  hbtvm_close(executor);
  return NULL;
}

static void free_worker(const struct executor *executor, struct worker *worker) {
  if (!worker) return;
  for (int64_t i = 0; worker->calls && i < executor->calls; ++i) free(worker->calls[i].values);
  for (int i = 0; i < HBTVM_MEMORIES; ++i) free(worker->memory[i]);
  free(worker->calls);
  free(worker);
}

void hbtvm_close(struct executor *executor) {
  if (!executor) return;
  hbtvm_pool_free(executor->pool);
  for (int i = 0; i < HBTVM_IDLE; ++i) free_worker(executor, atomic_load(&executor->idle[i]));
  for (int64_t i = 0; i < executor->kernels; ++i) hbtvm_unbind(&executor->bounds[i]);
  free(executor->bounds);
  free(executor->sets);
  free(executor->first_set);
  free(executor->first_call);
  free(executor->numbers);
  free(executor);
}

struct worker *hbtvm_take(struct executor *executor) {
  /* Exchanged atomically instead of a list under a lock: a lock that a thread held during a fork would stay locked. */
  for (int i = 0; i < HBTVM_IDLE; ++i) {
    if (!atomic_load_explicit(&executor->idle[i], memory_order_relaxed)) continue;
    struct worker *found = atomic_exchange(&executor->idle[i], NULL);
    if (found) return found;
  }
  struct worker *worker = calloc(1, sizeof *worker);
  if (!worker) return NULL;
  worker->calls = calloc((size_t)executor->calls + 1, sizeof *worker->calls);
  if (!worker->calls) {
    free(worker);
    return NULL;
  }
  return worker;
}

void hbtvm_give(struct executor *executor, struct worker *worker) {
  for (int i = 0; i < HBTVM_IDLE; ++i) {
    struct worker *none = NULL;
    if (atomic_compare_exchange_strong(&executor->idle[i], &none, worker)) return;
  }
  free_worker(executor, worker);
}

struct call *hbtvm_bound_call(struct executor *executor, struct worker *worker, const struct bound *bound,
                              int64_t part) {
  struct call *call = &worker->calls[executor->first_call[bound->number] + part];
  if (!call->values && !hbtvm_lay_out(call, bound, part)) return NULL;
  return call;
}

const struct bound_set *hbtvm_set(const struct executor *executor, int64_t stage, int64_t type) {
  for (int64_t i = executor->first_set[stage]; i < executor->first_set[stage + 1]; ++i) {
    if (executor->sets[i].type == type) return &executor->sets[i];
  }
  return NULL;
}

int64_t hbtvm_check(struct executor *executor) {
  struct worker *worker = hbtvm_take(executor);
  if (!worker) return -2;
  int64_t failed = -1;
  /* Kernels check addresses even for no rows. */
  void *memory = hbtvm_memory(worker, TILE_MEMORY, HBTVM_ALIGNMENT);
  for (int64_t i = 0; memory && failed == -1 && i < executor->kernels; ++i) {
    const struct bound *bound = &executor->bounds[i];
    for (int64_t part = 0; failed == -1 && part < bound->parts; ++part) {
      struct call *call = hbtvm_bound_call(executor, worker, bound, part);
      if (!call) {
        failed = -2;
      } else if (hbtvm_call(call, bound, memory, 0, memory)) {
        failed = i;
      }
    }
  }
  hbtvm_give(executor, worker);
  return memory ? failed : -2;
}

int64_t hbtvm_steps(struct executor *executor, int64_t type, int64_t n, struct plan_step *steps) {
  const struct bound_set *set = hbtvm_set(executor, executor->model->count - 1, type);
  int64_t count = set ? hbtvm_plan(set, n, steps) : 0;
  for (int64_t i = 0; i < count; ++i) {
    steps[i].threads = hbtvm_busy(&set->bound[steps[i].kernel], steps[i].stop - steps[i].start);
  }
  return count;
}
