/* Conversion of structures to levels. */
#include <string.h>

#include "recursive/internal.h"

/* DFS marks: unvisited, on the path. */
enum { UNSEEN = -1, OPEN = -2 };

static int misplaced(struct recursive_place *place, int status, int64_t structure, int64_t node) {
  place->structure = structure;
  place->node = node;
  return status;
}

/* Allocate the arrays of a batch; 0 if memory is short. */
static int make_room(const struct recursive_batch *batch, struct room *room, struct linear *linear) {
  size_t nodes = (size_t)batch->nodes + HBTVM_LANES, structures = (size_t)batch->structures + 1;
  size_t bytes = structures * (sizeof *linear->result + 3 * sizeof(int32_t) + sizeof *linear->start) +
                 nodes * (3 * sizeof(int32_t) + sizeof *linear->is_child);
  char *at = hbtvm_reserve(room, bytes);
  if (!at) return 0;
  linear->result = (int64_t *)(void *)at;
  linear->level = (int32_t *)(void *)(at + structures * sizeof *linear->result);
  linear->row = linear->level + nodes;
  linear->node = linear->row + nodes;
  linear->top = linear->node + nodes;
  linear->order = linear->top + structures;
  linear->own = linear->order + structures;
  linear->start = (struct cut *)(void *)(linear->own + structures);
  linear->is_child = (uint8_t *)(linear->start + structures);
  return 1;
}

/* Compute levels of nodes that precede all of their children. */
static int32_t levels_from_behind(const struct recursive_batch *batch, int32_t *level, int32_t lo, int32_t hi) {
  int32_t top = 0;
  for (int32_t v = hi - 1; v >= lo; --v) {
    int32_t own = 0;
    for (int32_t e = batch->first[v]; e < batch->first[v + 1]; ++e) {
      int32_t c = batch->child[e];
      if (c >= 0 && level[c] >= own) own = level[c] + 1;
    }
    level[v] = own;
    if (own > top) top = own;
  }
  return top;
}

/* Compute levels of nodes in any order, depth first. `way` and `edge` have room for as many nodes. Returns the highest
 * level, or -1 for a cycle, with its node in *odd. */
static int32_t levels_by_search(const struct recursive_batch *batch, int32_t *level, int32_t lo, int32_t hi,
                                int32_t *way, int32_t *edge, int32_t *odd) {
  int32_t top = 0;
  for (int32_t v = lo; v < hi; ++v) level[v] = UNSEEN;
  for (int32_t from = lo; from < hi; ++from) {
    if (level[from] != UNSEEN) continue;
    int32_t length = 1;
    way[0] = from;
    edge[0] = batch->first[from];
    level[from] = OPEN;
    while (length) {
      int32_t v = way[length - 1], e = edge[length - 1], stop = batch->first[v + 1];
      while (e < stop && (batch->child[e] < 0 || level[batch->child[e]] >= 0)) ++e;
      if (e < stop) {
        int32_t c = batch->child[e];
        if (level[c] == OPEN) {
          *odd = c;
          return -1;
        }
        edge[length - 1] = e + 1;
        level[c] = OPEN;
        way[length] = c;
        edge[length++] = batch->first[c];
        continue;
      }
      int32_t own = 0;
      for (e = batch->first[v]; e < stop; ++e) {
        int32_t c = batch->child[e];
        if (c >= 0 && level[c] >= own) own = level[c] + 1;
      }
      level[v] = own;
      if (own > top) top = own;
      --length;
    }
  }
  return top;
}

/* Check the nodes and children of a structure, and compute its levels; returns an enum recursive_status. */
static inline int structure_levels(const struct recursive_model *model, const struct recursive_batch *batch,
                                   struct linear *linear, int64_t b, struct recursive_place *place, int roots) {
  int32_t lo = (int32_t)batch->starts[b], hi = (int32_t)batch->starts[b + 1];
  const int32_t *first = batch->first, *child = batch->child;
  int32_t *level = linear->level, top = -1;
  int64_t most = model->children < 0 ? batch->edges : model->children;
  int ahead = 0, behind = 0;
  int32_t e = first[lo];
  for (int32_t v = lo; v < hi; ++v) {
    int32_t stop = first[v + 1], own = 0;
    if (stop < e || stop > batch->edges) return misplaced(place, HBTVM_BAD_ARRAYS, b, v - lo);
    if (stop - e > most) return misplaced(place, HBTVM_MANY_CHILDREN, b, v - lo);
    for (; e < stop; ++e) {
      int32_t c = child[e];
      if (c < lo || c >= hi) {
        if (c == -1) continue;
        return misplaced(place, HBTVM_CHILD_OUTSIDE, b, v - lo);
      }
      if (roots) linear->is_child[c] = 1;
      if (c >= v) {
        if (c == v) return misplaced(place, HBTVM_CYCLE, b, v - lo);
        ahead = 1;
        continue;
      }
      behind = 1;
      if (level[c] >= own) own = level[c] + 1;
    }
    level[v] = own;
    if (own > top) top = own;
  }
  if (ahead && !behind) {
    top = levels_from_behind(batch, level, lo, hi);
  } else if (ahead) {
    int32_t odd = 0;
    top = levels_by_search(batch, level, lo, hi, linear->row + lo, linear->node + lo, &odd);
    if (top < 0) return misplaced(place, HBTVM_CYCLE, b, odd - lo);
  }
  linear->top[b] = top;
  return HBTVM_OK;
}

/* Check the indices of an input against the number of its rows. */
static int check_numbers(const struct recursive_model *model, const struct recursive_batch *batch, int64_t input,
                         struct recursive_place *place) {
  const struct recursive_input *known = &model->inputs[input];
  const int32_t *number = batch->inputs[input];
  uint32_t shift = known->optional ? 1 : 0, size = (uint32_t)known->size + shift, odd = 0;
  for (int64_t v = 0; v < batch->nodes; ++v) odd |= (uint32_t)number[v] + shift >= size;
  if (!odd) return HBTVM_OK;
  int64_t v = 0, b = 0;
  while ((uint32_t)number[v] + shift < size) ++v;
  while (batch->starts[b + 1] <= v) ++b;
  place->input = input;
  return misplaced(place, HBTVM_NUMBER_OUTSIDE, b, v - batch->starts[b]);
}

static int check_arrays(const struct recursive_batch *batch, struct recursive_place *place) {
  int64_t most = INT32_MAX - (1 << 16), nodes = batch->nodes;
  if (batch->structures < 0 || nodes < 0 || batch->edges < 0) return HBTVM_BAD_ARGUMENT;
  if (batch->structures > most || nodes > most || batch->edges > most) return HBTVM_TOO_LARGE;
  if (batch->starts[0] != 0) return misplaced(place, HBTVM_BAD_ARRAYS, 0, -1);
  for (int64_t b = 0; b < batch->structures; ++b) {
    if (batch->starts[b + 1] < batch->starts[b] || batch->starts[b + 1] > nodes) {
      return misplaced(place, HBTVM_BAD_ARRAYS, b, -1);
    }
  }
  if (batch->starts[batch->structures] != nodes || batch->first[0] != 0 || batch->first[nodes] != batch->edges) {
    return misplaced(place, HBTVM_BAD_ARRAYS, batch->structures - 1, -1);
  }
  return HBTVM_OK;
}

int hbtvm_linearize(const struct recursive_model *model, const struct recursive_batch *batch,
                    struct recursive_worker *worker, struct linear *linear, struct recursive_place *place) {
  int status = check_arrays(batch, place);
  if (status) return status;
  if (!make_room(batch, &worker->batch, linear)) return HBTVM_NO_MEMORY;
  int roots = model->over == HBTVM_ROOTS;
  if (roots) memset(linear->is_child, 0, (size_t)batch->nodes);
  int64_t result = 0;
  for (int64_t b = 0; b < batch->structures; ++b) {
    linear->result[b] = result;
    linear->order[b] = (int32_t)b;
    if (roots) {
      status = structure_levels(model, batch, linear, b, place, 1);
      for (int64_t v = batch->starts[b]; v < batch->starts[b + 1]; ++v) result += !linear->is_child[v];
    } else {
      status = structure_levels(model, batch, linear, b, place, 0);
      result += model->over == HBTVM_EACH ? batch->starts[b + 1] - batch->starts[b] : 1;
    }
    if (status) return status;
  }
  linear->result[batch->structures] = result;
  linear->row[0] = 0;
  for (int64_t i = 0; i < model->input_count && !status; ++i) {
    if (!model->inputs[i].is_vector) status = check_numbers(model, batch, i, place);
  }
  return status;
}
