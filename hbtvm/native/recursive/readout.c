/* Results of structures from the rows of their nodes. */
#include <string.h>

#include "recursive/internal.h"

/* Copy the state without its padding. */
static void copy_state(const struct recursive_model *model, const float *from, float *to) {
  int64_t columns = model->columns, padded = (columns + HBTVM_LANES - 1) / HBTVM_LANES * HBTVM_LANES;
  for (int64_t r = 0; r < model->rows; ++r, from += padded, to += columns) {
    memcpy(to, from, (size_t)columns * sizeof *to);
  }
}

static const float *state_of(const struct recursive_call *call, const float *state, int64_t node) {
  const struct recursive_model *model = call->recursive->model;
  return state + call->linear.row[node + 1] * model->width + model->state;
}

/* Sum and mean over a structure's nodes, in the order of nodes. Sums are float64, since there may be thousands of
 * nodes. */
static int sum_nodes(const struct recursive_call *call, struct recursive_worker *worker, int64_t b, const float *state,
                     float *to) {
  const struct recursive_model *model = call->recursive->model;
  int64_t lo = call->batch->starts[b], hi = call->batch->starts[b + 1];
  int64_t columns = model->columns, padded = (columns + HBTVM_LANES - 1) / HBTVM_LANES * HBTVM_LANES;
  double *sums = hbtvm_reserve(&worker->sums, (size_t)columns * sizeof *sums);
  if (!sums) return HBTVM_NO_MEMORY;
  double count = model->over == HBTVM_MEAN && hi > lo ? (double)(hi - lo) : 1;
  for (int64_t r = 0; r < model->rows; ++r, to += columns) {
    memset(sums, 0, (size_t)columns * sizeof *sums);
    for (int64_t v = lo; v < hi; ++v) {
      const float *from = state_of(call, state, v) + r * padded;
      for (int64_t i = 0; i < columns; ++i) sums[i] += from[i];
    }
    for (int64_t i = 0; i < columns; ++i) to[i] = (float)(sums[i] / count);
  }
  return HBTVM_OK;
}

/* Maximum over a structure's nodes; NaN if a node has NaN. */
static void most_of_nodes(const struct recursive_call *call, int64_t b, const float *state, float *to) {
  const struct recursive_model *model = call->recursive->model;
  int64_t lo = call->batch->starts[b], hi = call->batch->starts[b + 1];
  int64_t columns = model->columns, padded = (columns + HBTVM_LANES - 1) / HBTVM_LANES * HBTVM_LANES;
  if (lo == hi) {
    memset(to, 0, (size_t)(model->rows * columns) * sizeof *to);
    return;
  }
  copy_state(model, state_of(call, state, lo), to);
  for (int64_t v = lo + 1; v < hi; ++v) {
    const float *from = state_of(call, state, v);
    for (int64_t r = 0; r < model->rows; ++r) {
      const float *row = from + r * padded;
      float *most = to + r * columns;
      for (int64_t i = 0; i < columns; ++i) most[i] = row[i] <= most[i] || most[i] != most[i] ? most[i] : row[i];
    }
  }
}

int hbtvm_read_out(const struct recursive_call *call, struct recursive_worker *worker, const struct group *group,
                   const float *state) {
  const struct recursive_model *model = call->recursive->model;
  const struct linear *linear = &call->linear;
  int64_t width = model->rows * model->columns;
  for (int64_t i = group->first; i < group->stop; ++i) {
    int64_t b = linear->order[i];
    float *to = call->out + linear->result[b] * width;
    if (model->over == HBTVM_ROOTS || model->over == HBTVM_EACH) {
      for (int64_t v = call->batch->starts[b]; v < call->batch->starts[b + 1]; ++v) {
        if (model->over == HBTVM_ROOTS && linear->is_child[v]) continue;
        copy_state(model, state_of(call, state, v), to);
        to += width;
      }
    } else if (model->over == HBTVM_MOST) {
      most_of_nodes(call, b, state, to);
    } else {
      int status = sum_nodes(call, worker, b, state, to);
      if (status) return status;
    }
  }
  return HBTVM_OK;
}
