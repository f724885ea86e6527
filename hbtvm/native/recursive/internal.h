/* An opened recursive model, and state that the parts of its calls share. */
#ifndef HBTVM_RECURSIVE_INTERNAL_H
#define HBTVM_RECURSIVE_INTERNAL_H

#include <stdatomic.h>
#include <stddef.h>

#include "executor/kernel.h"
#include "executor/pool.h"
#include "recursive/recursive.h"

/* Maximal number of workers kept for later calls. */
#define HBTVM_RECURSIVE_IDLE 32

/* Widths of states are multiples of this many float32; this many int32 have the same size. */
#define HBTVM_LANES 16

/* Growing memory, aligned to HBTVM_ALIGNMENT. */
struct room {
  void *at;
  size_t bytes;
};

/* Numbers of structures and nodes before a group. */
struct cut {
  int32_t structures, nodes;
};

/* A batch by row: row 0 is zeros, then nodes follow level by level, separately for each group of structures. */
struct linear {
  int32_t *level;  /* of each node */
  int32_t *row;    /* row[v + 1] is node v's; row[0] is 0, the row of child -1 */
  int32_t *node;   /* per group: its nodes in the order of rows, starting at the place of its first node */
  int32_t *top;    /* per structure: its highest level; -1 without nodes */
  int32_t *order;  /* structures, group by group */
  int32_t *own;    /* per structure: its group */
  struct cut *start; /* of groups + 1 */
  int64_t *result; /* per structure: its first result; then the number of all results */
  uint8_t *is_child; /* per node, if roots are read */
};

/* Structures that are computed together: their nodes and levels. */
struct group {
  int64_t first, stop; /* in the order of structures */
  int64_t first_node;  /* in the order of groups */
  int64_t nodes;
  int64_t levels;
  const int32_t *start; /* of levels + 1: rows, from 1 */
};

/* Nodes of a level in a part of a stage, see recursive/unroll.c. */
struct piece {
  int32_t row, first, nodes; /* first row, first node in the order of rows, number of nodes */
  int32_t level;
};

/* Levels that are computed several at a time. */
struct parts {
  int64_t depth, stages;     /* levels per stage; number of stages */
  const int32_t *part;       /* first part of each stage; stages + 1 */
  const struct piece *piece; /* `depth` per part */
  int64_t rows;              /* total */
  int64_t scratch;           /* maximal scratch memory of a piece, in numbers */
};

/* The way in which a group is computed. */
enum { HBTVM_BY_LEVEL = 0, HBTVM_BY_PARTS = 1, HBTVM_NO_PARTS = -1 };

/* The arguments of a step, laid out once for each worker. */
struct step_call {
  struct value *values;
  struct tensor *tensors; /* shapes follow */
};

/* The nodes of a level for which a table is filled. */
struct filled {
  int64_t serial, at, tiles, tile;
};

/* The work memory of a thread, kept for later calls. */
struct recursive_worker {
  _Alignas(HBTVM_ALIGNMENT) int32_t span[2];
  struct step_call *calls; /* of all steps, see `struct opened_steps` */
  struct room batch;  /* arrays of `linear` */
  struct room levels; /* of `group` */
  struct room parts;  /* of `struct parts` */
  struct room state, scratch, sums;
  struct room child;
  struct filled child_filled;
  struct room *inputs;
  struct filled *input_filled;
};

/* The executor's data about a program's main or tail steps, besides their description. */
struct opened_steps {
  int64_t first_call;
  int64_t *unit; /* per step: tiles per unit; threads take whole units, after which memory is aligned */
};

struct opened_kernels {
  struct opened_steps steps[HBTVM_PROGRAMS][2]; /* by program; main, tail */
  int64_t threads;                 /* threads that a call may use */
};

struct recursive {
  const struct recursive_model *model;
  struct opened_kernels *kernels;
  int64_t threads; /* maximal threads per call */
  int64_t calls;   /* number of steps of all kernels */
  int64_t spare;   /* rows after the last level, which a last tile may write */
  int64_t poison;  /* see hbtvm_recursive_poison */
  struct pool *pool;
  _Atomic(struct recursive_worker *) idle[HBTVM_RECURSIVE_IDLE];
};

/* The state of a call, shared by its threads. */
struct recursive_call {
  struct recursive *recursive;
  const struct recursive_batch *batch;
  int64_t kernels; /* which */
  int64_t threads, groups;
  struct linear linear;
  struct recursive_worker *worker; /* the caller's worker, with the arrays of `linear` */
  float *out;
  _Atomic int status;
};

/* The current level, and its location. */
struct level {
  const struct recursive_call *call;
  int64_t serial; /* differs for each level of a worker's call; at least 1 */
  int64_t program;
  int64_t row;   /* of its first node */
  int64_t nodes; /* in the level */
  const int32_t *node;
  int64_t main, tail; /* tiles */
  float *state;       /* of the group */
  int64_t rows;       /* of `state` */
  float *scratch;     /* of the level */
};

/* Return at least this many bytes; null if memory is short. Earlier contents are lost. */
void *hbtvm_reserve(struct room *room, size_t bytes);

struct recursive_worker *hbtvm_recursive_take(struct recursive *recursive);
void hbtvm_recursive_give(struct recursive *recursive, struct recursive_worker *worker);
void hbtvm_free_worker(const struct recursive *recursive, struct recursive_worker *worker);

/* Check a batch, and compute levels and results; returns an enum recursive_status. */
int hbtvm_linearize(const struct recursive_model *model, const struct recursive_batch *batch,
                    struct recursive_worker *worker, struct linear *linear, struct recursive_place *place);

/* Assign structures to groups. */
void hbtvm_choose_groups(struct recursive_call *call);

/* Assign rows to the nodes of a group, whose `first`, `stop` and `first_node` are set; 0 if memory is short. */
int hbtvm_group(const struct recursive_batch *batch, struct recursive_worker *worker, const struct linear *linear,
                struct group *group);

/* Assign the nodes of a group, which have rows, to parts with new rows, if its kernels ask for parts and no node has
 * several parents. Returns HBTVM_BY_PARTS; HBTVM_BY_LEVEL if rows are unchanged; or HBTVM_NO_PARTS if memory is
 * short. */
int hbtvm_parts(const struct recursive_call *call, struct recursive_worker *worker, const struct group *group,
                struct parts *parts);

/* Run share k of m of a stage; `of` has the group's location. Returns an enum status. */
int hbtvm_run_parts(struct recursive_worker *worker, const struct level *of, const struct parts *parts, int64_t stage,
                    int64_t k, int64_t m);

/* Return a level's scratch memory in numbers. */
int64_t hbtvm_scratch_numbers(const struct recursive *recursive, int64_t kernels, int64_t program, int64_t nodes);

/* Run part k of m of a step of a level, of its main or tail steps. Returns an enum status. */
int hbtvm_step_part(struct recursive_worker *worker, const struct level *level, int64_t tail, int64_t step, int64_t k,
                    int64_t m);

/* Call a step without tiles. */
int hbtvm_step_check(struct recursive *recursive, struct recursive_worker *worker, int64_t kernels, int64_t program,
                     int64_t tail, int64_t step);

/* Write the results of a group. Returns an enum status. */
int hbtvm_read_out(const struct recursive_call *call, struct recursive_worker *worker, const struct group *group,
                   const float *state);

/* Compute groups of structures, each by a thread or all by the team. Sets `status`. */
void hbtvm_run_groups(struct recursive_call *call);

static inline int64_t tiles_of(int64_t nodes, int64_t tile) { return (nodes + tile - 1) / tile; }

/* Return the class of a level's nodes: children of level 1 are all of level 0. */
static inline int64_t class_of(const struct recursive_kernels *kernels, int64_t level) {
  if (level == 1 && kernels->program[HBTVM_FIRST].main.count) return HBTVM_FIRST;
  return level > 0 ? HBTVM_INNER : HBTVM_LEAF;
}

/* Return the tiles of a level's main and tail steps. */
static inline void split_level(const struct recursive_program *program, int64_t nodes, int64_t *main, int64_t *tail) {
  int64_t rest = nodes % program->main.tile;
  int by_tail = rest && rest <= program->tail_most;
  *main = nodes / program->main.tile + (rest && !by_tail);
  *tail = by_tail ? tiles_of(rest, program->tail.tile) : 0;
}

#endif
