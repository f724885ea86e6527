/* Several levels at a time: recursive unrolling (Cortex, MLSys'21, section 5.2).
 *
 * Stages consist of `depth` levels. Within a stage, a node belongs to the subtree of its highest ancestor in the same
 * stage. Whole subtrees are grouped into parts of about equal size. A thread computes a part level by level, while
 * others compute theirs: threads synchronise once per stage, and children's states are still in the cache of the core
 * that computed them. This requires that no node has several parents.
 */
#include <string.h>

#include "recursive/internal.h"

/* Bytes of a part's states in a thread: a fraction of the second-level cache. */
#define PART_BYTES (1 << 18)

/* Minimal number of whole tiles per part, above which incomplete last tiles are negligible. */
#define PART_TILES 16

/* Work memory of `hbtvm_parts`; nodes are numbered by their rows by level. */
struct sorting {
  int32_t *root;  /* per node: first its parent or -1, then its highest ancestor in its stage */
  int32_t *own;   /* per root: the number of nodes with children in its subtree, then its part */
  int32_t *stage; /* per level */
  int32_t *placed; /* per stage: nodes with children in subtrees that already have a part */
  int32_t *part;  /* see `struct parts` */
  struct piece *piece;
};

static int64_t level_nodes(const struct group *group, int64_t lo, int64_t hi) {
  return group->start[hi] - group->start[lo];
}

/* Return the level after a stage's last. */
static int64_t stage_stop(const struct group *group, int64_t depth, int64_t s) {
  return (s + 1) * depth < group->levels ? (s + 1) * depth : group->levels;
}

/* Return the number of nodes with children in a stage. */
static int64_t stage_inner(const struct group *group, int64_t depth, int64_t s) {
  return level_nodes(group, s ? s * depth : 1, stage_stop(group, depth, s));
}

/* Return the number of parts of a stage. */
static int64_t parts_of(const struct recursive_call *call, const struct group *group, int64_t depth, int64_t s) {
  const struct recursive_model *model = call->recursive->model;
  const struct recursive_kernels *kernels = &model->kernels[call->kernels];
  int64_t node_bytes = model->width * (int64_t)sizeof(float), tile = kernels->program[HBTVM_INNER].main.tile;
  int64_t size = PART_BYTES / node_bytes > PART_TILES * tile ? PART_BYTES / node_bytes : PART_TILES * tile;
  int64_t stop = stage_stop(group, depth, s), nodes = level_nodes(group, s * depth, stop), widest = 0;
  for (int64_t l = s ? s * depth : 1; l < stop; ++l) {
    if (level_nodes(group, l, l + 1) > widest) widest = level_nodes(group, l, l + 1);
  }
  /* Use the number of threads of the tuning, whatever the call's: results must not depend on the number of threads. */
  int64_t unit = kernels->share == HBTVM_NODES || kernels->share == HBTVM_PANELS ? kernels->threads : 1;
  int64_t count = tiles_of(tiles_of(nodes, size), unit) * unit;
  /* More parts than a level's tiles only add incomplete tiles, each of which takes as long as a whole tile. */
  return count < tiles_of(widest, tile) ? count : tiles_of(widest, tile);
}

/* Allocate this many parts; 0 if memory is short. */
static int make_room(struct recursive_worker *worker, const struct group *group, const struct parts *parts,
                     int64_t count, struct sorting *sorting) {
  size_t nodes = (size_t)group->nodes, levels = (size_t)group->levels, stages = (size_t)parts->stages;
  size_t pieces = (size_t)(count * parts->depth);
  size_t numbers = 2 * nodes + levels + 2 * stages + 2;
  char *at = hbtvm_reserve(&worker->parts, pieces * sizeof(struct piece) + numbers * sizeof(int32_t));
  if (!at) return 0;
  memset(at, 0, pieces * sizeof(struct piece));
  sorting->piece = (struct piece *)(void *)at;
  sorting->root = (int32_t *)(void *)(sorting->piece + pieces);
  sorting->own = sorting->root + nodes;
  sorting->stage = sorting->own + nodes;
  sorting->placed = sorting->stage + levels;
  sorting->part = sorting->placed + stages;
  return 1;
}

/* Write each node's parent; 0 if a node has several. */
static int find_parents(const struct recursive_call *call, const struct group *group, int32_t *parent) {
  const struct recursive_batch *batch = call->batch;
  const int32_t *row = call->linear.row + 1;
  memset(parent, -1, (size_t)group->nodes * sizeof *parent);
  for (int64_t i = group->first; i < group->stop; ++i) {
    int64_t b = call->linear.order[i];
    for (int64_t v = batch->starts[b]; v < batch->starts[b + 1]; ++v) {
      for (int32_t e = batch->first[v]; e < batch->first[v + 1]; ++e) {
        if (batch->child[e] < 0) continue;
        int32_t *of = &parent[row[batch->child[e]] - 1];
        if (*of >= 0 && *of != row[v] - 1) return 0;
        *of = row[v] - 1;
      }
    }
  }
  return 1;
}

/* Replace parents by the roots of subtrees, and compute the subtrees' weights. Returns the number of leaves that are
 * roots. */
static int64_t find_roots(const struct group *group, const struct parts *parts, const struct sorting *sorting) {
  int32_t *root = sorting->root;
  int64_t single = 0, stop = group->nodes, leaves = level_nodes(group, 0, 1);
  memset(sorting->own, 0, (size_t)group->nodes * sizeof *sorting->own);
  /* From the top, parents precede their children. */
  for (int64_t s = parts->stages - 1; s >= 0; --s) {
    int64_t first = group->start[s * parts->depth] - 1;
    for (int64_t i = stop - 1; i >= first; --i) {
      int below = root[i] >= 0 && root[i] < stop;
      root[i] = below ? root[root[i]] : (int32_t)i;
      sorting->own[root[i]] += i >= leaves;
      single += !below && i < leaves;
    }
    stop = first;
  }
  return single;
}

/* Assign a root's subtree to a part. `leaf` counts subtrees that are single leaves, `single` in number. */
static void choose_part(const struct group *group, const struct parts *parts, const struct sorting *sorting, int64_t s,
                        int32_t root, int64_t single, int64_t *leaf) {
  int64_t count = sorting->part[s + 1] - sorting->part[s], weight = sorting->own[root];
  int64_t all = stage_inner(group, parts->depth, s);
  /* By the middle of its weight. Single leaves have no weight and are distributed by number. */
  int64_t own = weight ? (2 * (int64_t)sorting->placed[s] + weight) * count / (2 * all) : (*leaf)++ * count / single;
  sorting->placed[s] += (int32_t)weight;
  sorting->own[root] = (int32_t)(sorting->part[s] + own);
}

/* Assign each subtree to a part, keeping neighbouring structures together where possible. */
static void choose_parts(const struct recursive_call *call, const struct group *group, const struct parts *parts,
                         const struct sorting *sorting, int64_t single) {
  const struct linear *linear = &call->linear;
  int64_t leaf = 0;
  memset(sorting->placed, 0, (size_t)parts->stages * sizeof *sorting->placed);
  for (int64_t i = group->first; i < group->stop; ++i) {
    int64_t b = linear->order[i];
    for (int64_t v = call->batch->starts[b]; v < call->batch->starts[b + 1]; ++v) {
      int32_t at = linear->row[v + 1] - 1;
      if (sorting->root[at] != at) continue;
      choose_part(group, parts, sorting, sorting->stage[linear->level[v]], at, single, &leaf);
    }
  }
}

/* Return the part of a node, which is stored at its subtree's root. */
static int64_t piece_of(const struct parts *parts, const struct sorting *sorting, int64_t node, int64_t level) {
  return sorting->own[sorting->root[node]] * parts->depth + level - sorting->stage[level] * parts->depth;
}

/* Assign rows of pieces, which have places but are empty so far, to nodes. */
static void place_nodes(const struct recursive_call *call, const struct group *group, const struct parts *parts,
                        const struct sorting *sorting) {
  const struct linear *linear = &call->linear;
  int32_t *node = linear->node + group->first_node;
  for (int64_t i = group->first; i < group->stop; ++i) {
    int64_t b = linear->order[i];
    for (int64_t v = call->batch->starts[b]; v < call->batch->starts[b + 1]; ++v) {
      int32_t *row = &linear->row[v + 1];
      struct piece *piece = &sorting->piece[piece_of(parts, sorting, *row - 1, linear->level[v])];
      *row = piece->row + piece->nodes;
      node[piece->first + piece->nodes++] = (int32_t)v;
    }
  }
}

/* Rows written by a piece's tiles. */
static int64_t written(const struct recursive_kernels *kernels, int64_t level, int64_t nodes) {
  const struct recursive_program *program = &kernels->program[class_of(kernels, level)];
  int64_t main, tail;
  split_level(program, nodes, &main, &tail);
  return main * program->main.tile + tail * program->tail.tile;
}

/* Assign rows to pieces. Each part is followed by spare rows for its incomplete tiles, since other threads work on the
 * next part's rows. 0 if there are too many rows. */
static int give_rows(const struct recursive_call *call, struct parts *parts, struct piece *piece) {
  const struct recursive_kernels *kernels = &call->recursive->model->kernels[call->kernels];
  int64_t row = 1, first = 0;
  for (int64_t s = 0; s < parts->stages; ++s) {
    for (int64_t q = parts->part[s]; q < parts->part[s + 1]; ++q) {
      int64_t end = row;
      for (int64_t j = 0; j < parts->depth; ++j, ++piece) {
        int64_t nodes = piece->nodes, level = s * parts->depth + j;
        *piece = (struct piece){(int32_t)row, (int32_t)first, 0, (int32_t)level};
        if (!nodes) continue;
        int64_t numbers = hbtvm_scratch_numbers(call->recursive, call->kernels, class_of(kernels, level), nodes);
        if (numbers > parts->scratch) parts->scratch = numbers;
        if (row + written(kernels, level, nodes) > end) end = row + written(kernels, level, nodes);
        row += nodes;
        first += nodes;
      }
      if (end > row) row = end;
      if (row > INT32_MAX) return 0;
    }
  }
  parts->rows = row;
  return 1;
}

int hbtvm_parts(const struct recursive_call *call, struct recursive_worker *worker, const struct group *group,
                struct parts *parts) {
  int64_t depth = call->recursive->model->kernels[call->kernels].depth;
  if (depth > group->levels) depth = group->levels;
  if (depth < 2) return HBTVM_BY_LEVEL;
  struct sorting sorting;
  *parts = (struct parts){.depth = depth, .stages = tiles_of(group->levels, depth)};
  int64_t count = 0;
  for (int64_t s = 0; s < parts->stages; ++s) count += parts_of(call, group, depth, s);
  /* Parts that are whole stages are plain levels. */
  if (count == parts->stages) return HBTVM_BY_LEVEL;
  if (!make_room(worker, group, parts, count, &sorting)) return HBTVM_NO_PARTS;
  if (!find_parents(call, group, sorting.root)) return HBTVM_BY_LEVEL;
  for (int64_t l = 0; l < group->levels; ++l) sorting.stage[l] = (int32_t)(l / depth);
  int64_t single = find_roots(group, parts, &sorting);
  sorting.part[0] = 0;
  for (int64_t s = 0; s < parts->stages; ++s) {
    sorting.part[s + 1] = sorting.part[s] + (int32_t)parts_of(call, group, depth, s);
  }
  parts->part = sorting.part;
  parts->piece = sorting.piece;
  choose_parts(call, group, parts, &sorting, single);
  for (int64_t l = 0; l < group->levels; ++l) {
    for (int64_t i = group->start[l] - 1; i < group->start[l + 1] - 1; ++i) {
      ++sorting.piece[piece_of(parts, &sorting, i, l)].nodes;
    }
  }
  if (!give_rows(call, parts, sorting.piece)) return HBTVM_BY_LEVEL;
  place_nodes(call, group, parts, &sorting);
  return HBTVM_BY_PARTS;
}

/* Compute one part. */
static int run_part(struct recursive_worker *worker, const struct level *of, const struct parts *parts, int64_t q) {
  const struct recursive_call *call = of->call;
  const struct recursive_kernels *kernels = &call->recursive->model->kernels[call->kernels];
  struct level level = *of;
  for (int64_t j = 0; j < parts->depth; ++j) {
    const struct piece *piece = &parts->piece[q * parts->depth + j];
    if (!piece->nodes) continue;
    level.serial = of->serial + 1 + q * parts->depth + j;
    level.program = class_of(kernels, piece->level);
    level.row = piece->row;
    level.nodes = piece->nodes;
    level.node = of->node + piece->first;
    const struct recursive_program *program = &kernels->program[level.program];
    split_level(program, level.nodes, &level.main, &level.tail);
    int64_t steps = program->main.count > program->tail.count ? program->main.count : program->tail.count;
    for (int64_t step = 0; step < steps; ++step) {
      int status = hbtvm_step_part(worker, &level, 0, step, 0, 1);
      if (!status) status = hbtvm_step_part(worker, &level, 1, step, 0, 1);
      if (status) return status;
    }
  }
  return HBTVM_OK;
}

int hbtvm_run_parts(struct recursive_worker *worker, const struct level *of, const struct parts *parts, int64_t stage,
                    int64_t k, int64_t m) {
  struct level own = *of;
  own.scratch = hbtvm_reserve(&worker->scratch, (size_t)parts->scratch * sizeof(float));
  if (!own.scratch) return HBTVM_NO_MEMORY;
  int64_t first = parts->part[stage], count = parts->part[stage + 1] - first;
  /* The leading thread gets one of a few parts: it can start without a signal. */
  k = m - 1 - k;
  for (int64_t q = first + count * k / m; q < first + count * (k + 1) / m; ++q) {
    int status = run_part(worker, &own, parts, q);
    if (status) return status;
  }
  return HBTVM_OK;
}
