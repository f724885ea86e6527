/* The memory of calls of recursive models. */
#include <stdlib.h>
#include <string.h>

#include "recursive/internal.h"

void *hbtvm_reserve(struct room *room, size_t bytes) {
  if (room->at && room->bytes >= bytes) return room->at;
  size_t size = (bytes + room->bytes / 2 + HBTVM_ALIGNMENT) / HBTVM_ALIGNMENT * HBTVM_ALIGNMENT;
  void *at = aligned_alloc(HBTVM_ALIGNMENT, size);
  if (!at) return NULL;
  free(room->at);
  room->at = at;
  room->bytes = size;
  return at;
}

void hbtvm_free_worker(const struct recursive *recursive, struct recursive_worker *worker) {
  if (!worker) return;
  for (int64_t i = 0; worker->calls && i < recursive->calls; ++i) free(worker->calls[i].tensors);
  for (int64_t i = 0; worker->inputs && i < recursive->model->input_count; ++i) free(worker->inputs[i].at);
  struct room *own[] = {&worker->batch, &worker->levels, &worker->state, &worker->scratch, &worker->sums,
                          &worker->child, &worker->parts};
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i) free(own[i]->at);
  free(worker->calls);
  free(worker->inputs);
  free(worker->input_filled);
  free(worker);
}

static struct recursive_worker *new_worker(const struct recursive *recursive) {
  size_t inputs = (size_t)recursive->model->input_count + 1;
  struct recursive_worker *worker = aligned_alloc(HBTVM_ALIGNMENT, sizeof *worker);
  if (!worker) return NULL;
  memset(worker, 0, sizeof *worker);
  worker->calls = calloc((size_t)recursive->calls + 1, sizeof *worker->calls);
  worker->inputs = calloc(inputs, sizeof *worker->inputs);
  worker->input_filled = calloc(inputs, sizeof *worker->input_filled);
  if (worker->calls && worker->inputs && worker->input_filled) return worker;
  hbtvm_free_worker(recursive, worker);
  return NULL;
}

struct recursive_worker *hbtvm_recursive_take(struct recursive *recursive) {
  struct recursive_worker *worker = NULL;
  /* Exchanged atomically instead of a list under a lock: a lock that a thread held during a fork would stay locked. */
  for (int i = 0; !worker && i < HBTVM_RECURSIVE_IDLE; ++i) {
    if (!atomic_load_explicit(&recursive->idle[i], memory_order_relaxed)) continue;
    worker = atomic_exchange(&recursive->idle[i], NULL);
  }
  if (!worker) return new_worker(recursive);
  /* The tables of the last call belong to other nodes. */
  worker->child_filled.serial = 0;
  for (int64_t i = 0; i < recursive->model->input_count; ++i) worker->input_filled[i].serial = 0;
  return worker;
}

void hbtvm_recursive_give(struct recursive *recursive, struct recursive_worker *worker) {
  for (int i = 0; i < HBTVM_RECURSIVE_IDLE; ++i) {
    struct recursive_worker *none = NULL;
    if (atomic_compare_exchange_strong(&recursive->idle[i], &none, worker)) return;
  }
  hbtvm_free_worker(recursive, worker);
}
