/* Batches by row for kernels on other devices, and results from their states. */
#include "recursive/rows.h"

#include <stdlib.h>
#include <string.h>

#include "recursive/internal.h"

/* State of a call. */
struct begun {
  struct recursive_worker *worker; /* includes the arrays of the others */
  struct linear linear;
  struct group group;
};

static int64_t most_children(const struct recursive_batch *batch) {
  int32_t most = 1;
  for (int64_t v = 0; v < batch->nodes; ++v) {
    int32_t own = batch->first[v + 1] - batch->first[v];
    if (own > most) most = own;
  }
  return most;
}

/* Return the lowest row that results read. */
static int64_t first_read(const struct recursive_model *model, const struct recursive_batch *batch,
                          const struct linear *linear) {
  if (model->over != HBTVM_ROOTS) return 1;
  int64_t found = batch->nodes + 1;
  for (int64_t v = 0; v < batch->nodes; ++v) {
    if (!linear->is_child[v] && linear->row[v + 1] < found) found = linear->row[v + 1];
  }
  return found;
}

static void describe(const struct recursive_model *model, const struct recursive_batch *batch,
                     const struct begun *begun, struct recursive_rows *rows) {
  rows->levels = begun->group.levels;
  rows->start = begun->group.start;
  rows->widest = 0;
  for (int64_t l = 0; l < rows->levels; ++l) {
    int64_t nodes = rows->start[l + 1] - rows->start[l];
    if (nodes > rows->widest) rows->widest = nodes;
  }
  rows->arity = model->children < 0 ? most_children(batch) : model->children > 0 ? model->children : 1;
  rows->results = begun->linear.result[batch->structures];
  rows->first_read = first_read(model, batch, &begun->linear);
}

int hbtvm_recursive_begin(struct recursive *recursive, const struct recursive_batch *batch, struct recursive_rows *rows,
                          struct recursive_place *place) {
  struct recursive_place odd = {-1, -1, -1};
  struct begun *begun = calloc(1, sizeof *begun);
  struct recursive_worker *worker = begun ? hbtvm_recursive_take(recursive) : NULL;
  int status = HBTVM_NO_MEMORY;
  if (worker) {
    begun->worker = worker;
    begun->group.stop = batch->structures;
    status = hbtvm_linearize(recursive->model, batch, worker, &begun->linear, &odd);
    if (!status && !hbtvm_group(batch, worker, &begun->linear, &begun->group)) status = HBTVM_NO_MEMORY;
  }
  if (place) *place = odd;
  if (!status) {
    describe(recursive->model, batch, begun, rows);
    rows->own = begun;
    return HBTVM_OK;
  }
  if (worker) hbtvm_recursive_give(recursive, worker);
  free(begun);
  return status;
}

static void fill_children(const struct recursive_batch *batch, const struct begun *begun, int64_t arity, int32_t *to) {
  const int32_t *row = begun->linear.row + 1;
  memset(to, 0, (size_t)arity * sizeof *to);
  to += arity;
  for (int64_t i = 0; i < batch->nodes; ++i, to += arity) {
    int32_t v = begun->linear.node[i];
    int64_t children = batch->first[v + 1] - batch->first[v], j = 0;
    for (; j < children; ++j) to[j] = row[batch->child[batch->first[v] + j]];
    for (; j < arity; ++j) to[j] = 0;
  }
}

void hbtvm_recursive_fill(const struct recursive *recursive, const struct recursive_batch *batch,
                          const struct recursive_rows *rows, int32_t *child, void *const *inputs) {
  const struct recursive_model *model = recursive->model;
  const struct begun *begun = rows->own;
  fill_children(batch, begun, rows->arity, child);
  for (int64_t n = 0; n < model->input_count; ++n) {
    /* int32 and float32 have the same size, and zeros of both are zero bytes. */
    int64_t size = model->inputs[n].is_vector ? model->inputs[n].size : 1;
    const int32_t *from = batch->inputs[n];
    int32_t *to = inputs[n];
    memset(to, 0, (size_t)size * sizeof *to);
    to += size;
    for (int64_t i = 0; i < batch->nodes; ++i, to += size) {
      memcpy(to, from + begun->linear.node[i] * size, (size_t)size * sizeof *to);
    }
  }
}

int hbtvm_recursive_read(struct recursive *recursive, const struct recursive_batch *batch,
                         const struct recursive_rows *rows, const float *state, float *out) {
  const struct begun *begun = rows->own;
  struct recursive_call call = {.recursive = recursive, .batch = batch, .out = out, .linear = begun->linear};
  return batch->structures ? hbtvm_read_out(&call, begun->worker, &begun->group, state) : HBTVM_OK;
}

void hbtvm_recursive_end(struct recursive *recursive, struct recursive_rows *rows) {
  struct begun *begun = rows->own;
  if (!begun) return;
  hbtvm_recursive_give(recursive, begun->worker);
  free(begun);
  rows->own = NULL;
}

int64_t hbtvm_recursive_rows_size(void) { return sizeof(struct recursive_rows); }
