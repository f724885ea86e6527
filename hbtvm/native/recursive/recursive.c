/* Opening and closing of recursive models, and whole calls. */
#define _GNU_SOURCE
#include "recursive/recursive.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "recursive/internal.h"

static const struct recursive_steps *steps_of(const struct recursive_kernels *kernels, int program, int tail) {
  return tail ? &kernels->program[program].tail : &kernels->program[program].main;
}

/* Number of tiles after which all scratch memory of a step is aligned. */
static int64_t unit_of(const struct recursive_program *program, const struct recursive_steps *steps, int64_t step) {
  int64_t unit = 1;
  for (int64_t i = 0; i < steps->step[step].count; ++i) {
    const struct recursive_argument *argument = &steps->step[step].arguments[i];
    if (argument->role != HBTVM_SCRATCH) continue;
    while (unit * steps->tile * program->scratch[argument->number] % HBTVM_LANES) unit *= 2;
  }
  return unit;
}

static int open_kernels(struct recursive *recursive, int64_t k, int64_t asked) {
  const struct recursive_kernels *kernels = &recursive->model->kernels[k];
  struct opened_kernels *opened = &recursive->kernels[k];
  opened->threads = asked ? asked : kernels->threads < recursive->threads ? kernels->threads : recursive->threads;
  for (int i = 0; i < 2 * HBTVM_PROGRAMS; ++i) {
    const struct recursive_steps *steps = steps_of(kernels, i / 2, i % 2);
    struct opened_steps *own = &opened->steps[i / 2][i % 2];
    own->first_call = recursive->calls;
    recursive->calls += steps->count;
    if (steps->tile > recursive->spare) recursive->spare = steps->tile;
    own->unit = calloc((size_t)steps->count + 1, sizeof *own->unit);
    if (!own->unit) return 0;
    for (int64_t step = 0; step < steps->count; ++step) {
      own->unit[step] = unit_of(&kernels->program[i / 2], steps, step);
    }
  }
  return 1;
}

static int64_t tuned_threads(const struct recursive_model *model) {
  int64_t most = 1;
  for (int64_t k = 0; k < model->count; ++k) {
    if (model->kernels[k].threads > most) most = model->kernels[k].threads;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) > most) return most;
  return CPU_COUNT(&set);
}

struct recursive *hbtvm_recursive_open(const struct recursive_model *model, int64_t threads) {
  if (model->version != HBTVM_RECURSIVE_VERSION) return NULL;
  struct recursive *recursive = calloc(1, sizeof *recursive);
  if (!recursive) return NULL;
  recursive->model = model;
  recursive->threads = threads > 0 ? threads : tuned_threads(model);
  recursive->kernels = calloc((size_t)model->count, sizeof *recursive->kernels);
  int done = recursive->kernels != NULL;
  for (int64_t k = 0; done && k < model->count; ++k) done = open_kernels(recursive, k, threads > 0 ? threads : 0);
  if (done && recursive->threads > 1) {
    recursive->pool = hbtvm_pool_new(recursive->threads);
    done = recursive->pool != NULL;
  }
  if (done) return recursive;
  hbtvm_recursive_close(recursive);
  return NULL;
}

void hbtvm_recursive_close(struct recursive *recursive) {
  if (!recursive) return;
  hbtvm_pool_free(recursive->pool);
  for (int i = 0; i < HBTVM_RECURSIVE_IDLE; ++i) hbtvm_free_worker(recursive, atomic_load(&recursive->idle[i]));
  for (int64_t k = 0; recursive->kernels && k < recursive->model->count; ++k) {
    for (int i = 0; i < 2 * HBTVM_PROGRAMS; ++i) free(recursive->kernels[k].steps[i / 2][i % 2].unit);
  }
  free(recursive->kernels);
  free(recursive);
}

int64_t hbtvm_recursive_check(struct recursive *recursive) {
  const struct recursive_model *model = recursive->model;
  struct recursive_worker *worker = hbtvm_recursive_take(recursive);
  int64_t failed = worker ? -1 : -2;
  for (int64_t k = 0; failed == -1 && k < model->count; ++k) {
    int64_t number = 0;
    for (int i = 0; i < 2 * HBTVM_PROGRAMS; ++i) {
      for (int64_t s = 0; failed == -1 && s < steps_of(&model->kernels[k], i / 2, i % 2)->count; ++s, ++number) {
        int status = hbtvm_step_check(recursive, worker, k, i / 2, i % 2, s);
        if (status) failed = status == HBTVM_NO_MEMORY ? -2 : k * 1024 + number;
      }
    }
  }
  if (worker) hbtvm_recursive_give(recursive, worker);
  return failed;
}

void hbtvm_recursive_poison(struct recursive *recursive, int64_t on) { recursive->poison = on; }

int64_t hbtvm_recursive_choice(const struct recursive *recursive, int64_t structures) {
  const struct recursive_model *model = recursive->model;
  int64_t found = 0;
  double least = 0;
  for (int64_t k = 0; k < model->count; ++k) {
    const struct recursive_kernels *kernels = &model->kernels[k], *best = &model->kernels[found];
    /* The distance: the ratio of two numbers of structures, at least 1. */
    double apart = (double)(structures > 0 ? structures : 1) / (double)kernels->structures;
    if (apart < 1) apart = 1 / apart;
    int faster = kernels->structures == best->structures && kernels->seconds >= 0 &&
                 (best->seconds < 0 || kernels->seconds < best->seconds);
    if (k && !(apart < least) && !faster) continue;
    found = k;
    least = apart;
  }
  return found;
}

int hbtvm_recursive_run(struct recursive *recursive, const struct recursive_batch *batch, float *out,
                        int64_t *results, int64_t threads, struct recursive_place *place) {
  struct recursive_place own = {-1, -1, -1};
  struct recursive_call call = {.recursive = recursive, .batch = batch, .out = out};
  struct recursive_worker *worker = call.worker = hbtvm_recursive_take(recursive);
  int status = worker ? hbtvm_linearize(recursive->model, batch, worker, &call.linear, &own) : HBTVM_NO_MEMORY;
  if (!status) {
    int64_t room = *results;
    *results = call.linear.result[batch->structures];
    if (*results > room) status = HBTVM_MORE_RESULTS;
  }
  if (!status && batch->structures) {
    call.kernels = hbtvm_recursive_choice(recursive, batch->structures);
    call.threads = recursive->kernels[call.kernels].threads;
    if (threads > 0 && threads < call.threads) call.threads = threads;
    hbtvm_run_groups(&call);
    status = atomic_load(&call.status);
  }
  if (worker) hbtvm_recursive_give(recursive, worker);
  if (place) *place = own;
  return status;
}

int64_t hbtvm_recursive_levels(struct recursive *recursive, const struct recursive_batch *batch, int32_t *row,
                               int32_t *level_start, struct recursive_place *place) {
  struct recursive_place own = {-1, -1, -1};
  struct linear linear;
  struct group group = {.first = 0, .stop = batch->structures};
  struct recursive_worker *worker = hbtvm_recursive_take(recursive);
  int status = worker ? hbtvm_linearize(recursive->model, batch, worker, &linear, &own) : HBTVM_NO_MEMORY;
  if (!status && !hbtvm_group(batch, worker, &linear, &group)) status = HBTVM_NO_MEMORY;
  if (!status) {
    memcpy(row, linear.row + 1, (size_t)batch->nodes * sizeof *row);
    memcpy(level_start, group.start, (size_t)(group.levels + 1) * sizeof *level_start);
  }
  if (worker) hbtvm_recursive_give(recursive, worker);
  if (place) *place = own;
  return status ? -status : group.levels;
}

int64_t hbtvm_recursive_version(void) { return HBTVM_RECURSIVE_VERSION; }

/* Sizes of the structures, which the loader checks against its own. */
int64_t hbtvm_recursive_size(int64_t which) {
  const size_t sizes[] = {sizeof(struct recursive_argument), sizeof(struct recursive_step),
                          sizeof(struct recursive_steps),    sizeof(struct recursive_program),
                          sizeof(struct recursive_kernels),  sizeof(struct recursive_input),
                          sizeof(struct recursive_model),    sizeof(struct recursive_batch),
                          sizeof(struct recursive_place)};
  return which < (int64_t)(sizeof sizes / sizeof *sizes) ? (int64_t)sizes[which] : -1;
}
