/* Groups of structures that are computed together. */
#include "recursive/internal.h"

/* Bytes of a group's states, if it has several structures: larger groups do not gain from larger levels. */
#define GROUP_BYTES (1 << 22)

/* With more structures per group, their assignment does not matter. */
#define FEW_STRUCTURES 32

static int64_t nodes_of(const struct recursive_batch *batch, int64_t b) {
  return batch->starts[b + 1] - batch->starts[b];
}

/* The number of groups depends only on the call and the tuning: a node of a last tile may be rounded differently from a
 * node of a whole tile, and results must not depend on the number of threads. */
static int64_t count_of(const struct recursive_call *call) {
  const struct recursive_model *model = call->recursive->model;
  const struct recursive_kernels *kernels = &model->kernels[call->kernels];
  int64_t most = GROUP_BYTES / (model->width * (int64_t)sizeof(float));
  int64_t unit = kernels->share == HBTVM_STRUCTURES ? kernels->threads : 1;
  int64_t groups = tiles_of(tiles_of(call->batch->nodes, most > 0 ? most : 1), unit) * unit;
  if (groups < unit) groups = unit;
  return groups < call->batch->structures ? groups : call->batch->structures;
}

/* Return the structure at which the first g of these groups have a proportional share of the nodes. */
static int64_t cut(const struct recursive_batch *batch, int64_t g, int64_t groups) {
  if (g == groups) return batch->structures;
  int64_t target = batch->nodes * g / groups, lo = 0, hi = batch->structures;
  while (lo < hi) {
    int64_t middle = lo + (hi - lo) / 2;
    if (batch->starts[middle] < target) {
      lo = middle + 1;
    } else {
      hi = middle;
    }
  }
  return lo && target - batch->starts[lo - 1] < batch->starts[lo] - target ? lo - 1 : lo;
}

/* Sort structures by their number of nodes, largest first, stable for equal numbers (Shell, 1959). */
static void sort(const struct recursive_batch *batch, int32_t *order, int64_t count) {
  static const int64_t gaps[] = {301, 132, 57, 23, 10, 4, 1};
  for (size_t i = 0; i < sizeof gaps / sizeof *gaps; ++i) {
    for (int64_t at = gaps[i]; at < count; ++at) {
      int32_t own = order[at];
      int64_t nodes = nodes_of(batch, own), to = at;
      for (; to >= gaps[i]; to -= gaps[i]) {
        int32_t other = order[to - gaps[i]];
        int64_t others = nodes_of(batch, other);
        if (others > nodes || (others == nodes && other < own)) break;
        order[to] = other;
      }
      order[to] = own;
    }
  }
}

/* Assign each structure, largest first, to the group with the fewest nodes (Graham, 1969). */
static void balance(const struct recursive_batch *batch, struct linear *linear, int64_t groups) {
  struct cut *start = linear->start;
  for (int64_t g = 0; g <= groups; ++g) start[g] = (struct cut){0, 0};
  sort(batch, linear->order, batch->structures);
  for (int64_t i = 0; i < batch->structures; ++i) {
    int64_t least = 0;
    for (int64_t g = 1; g < groups; ++g) {
      if (start[g].nodes < start[least].nodes) least = g;
    }
    start[least].nodes += (int32_t)nodes_of(batch, linear->order[i]);
    ++start[least].structures;
    linear->own[linear->order[i]] = (int32_t)least;
  }
  struct cut all = {0, 0};
  for (int64_t g = 0; g <= groups; ++g) {
    struct cut own = start[g];
    start[g] = all;
    all.structures += own.structures;
    all.nodes += own.nodes;
  }
  /* A group's start advances with each structure, and is reset at the end. */
  for (int64_t b = 0; b < batch->structures; ++b) linear->order[start[linear->own[b]].structures++] = (int32_t)b;
  for (int64_t g = groups; g > 0; --g) start[g].structures = start[g - 1].structures;
  start[0].structures = 0;
}

void hbtvm_choose_groups(struct recursive_call *call) {
  const struct recursive_batch *batch = call->batch;
  int64_t share = call->recursive->model->kernels[call->kernels].share;
  call->groups = count_of(call);
  if (share == HBTVM_STRUCTURES && call->groups > 1 && batch->structures <= FEW_STRUCTURES * call->groups) {
    balance(batch, &call->linear, call->groups);
    return;
  }
  for (int64_t g = 0; g <= call->groups; ++g) {
    int64_t b = cut(batch, g, call->groups);
    call->linear.start[g] = (struct cut){(int32_t)b, (int32_t)batch->starts[b]};
  }
}

int hbtvm_group(const struct recursive_batch *batch, struct recursive_worker *worker, const struct linear *linear,
                struct group *group) {
  const int64_t *starts = batch->starts;
  const int32_t *order = linear->order, *level = linear->level;
  int32_t top = -1;
  for (int64_t i = group->first; i < group->stop; ++i) {
    if (linear->top[order[i]] > top) top = linear->top[order[i]];
  }
  int64_t levels = top + 1;
  size_t count = (size_t)levels + 2;
  int32_t *start = hbtvm_reserve(&worker->levels, 2 * count * sizeof *start);
  if (!start) return 0;
  int32_t *next = start + count;
  for (int64_t l = 0; l <= levels; ++l) next[l] = 0;
  for (int64_t i = group->first; i < group->stop; ++i) {
    for (int64_t v = starts[order[i]]; v < starts[order[i] + 1]; ++v) ++next[level[v]];
  }
  int32_t row = 1;
  for (int64_t l = 0; l < levels; ++l) {
    start[l] = row;
    row += next[l];
    next[l] = start[l];
  }
  start[levels] = row;
  int32_t *node = linear->node + group->first_node - 1, *own = linear->row + 1;
  for (int64_t i = group->first; i < group->stop; ++i) {
    for (int64_t v = starts[order[i]]; v < starts[order[i] + 1]; ++v) {
      int32_t at = next[level[v]]++;
      own[v] = at;
      node[at] = (int32_t)v;
    }
  }
  group->nodes = row - 1;
  group->levels = levels;
  group->start = start;
  return 1;
}
