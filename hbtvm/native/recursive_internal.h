/* An opened recursive model, and what the parts of its calls share. */
#ifndef HBTVM_RECURSIVE_INTERNAL_H
#define HBTVM_RECURSIVE_INTERNAL_H

#include <stdatomic.h>
#include <stddef.h>

#include "kernel.h"
#include "pool.h"
#include "recursive.h"

/* Workers that are kept for the next call; more are freed after theirs. */
#define HBTVM_RECURSIVE_IDLE 32

/* Numbers of float32 that widths of states are a multiple of, and so many int32 are as long. */
#define HBTVM_LANES 16

/* Memory that grows, aligned to HBTVM_ALIGNMENT. */
struct room {
  void *at;
  size_t bytes;
};

/* How many structures and nodes there are before a group. */
struct cut {
  int32_t structures, nodes;
};

/* A batch as its rows lie: row 0 is zeros, then nodes follow level by level, of each group of structures anew. */
struct linear {
  int32_t *level;  /* of each node */
  int32_t *row;    /* row[v + 1] is that of node v, row[0] is 0: that of child -1 */
  int32_t *node;   /* of a group: its nodes in the order of rows; at the place of its first node */
  int32_t *top;    /* of each structure: its highest level; -1 without nodes */
  int32_t *order;  /* structures, group by group */
  int32_t *own;    /* of each structure: its group */
  struct cut *start; /* of groups + 1 */
  int64_t *result; /* of each structure: its first result, and the number of all */
  uint8_t *is_child; /* of each node, where roots are read */
};

/* Structures that are computed together: their nodes and levels. */
struct group {
  int64_t first, stop; /* in the order of structures */
  int64_t first_node;  /* in the order of groups */
  int64_t nodes;
  int64_t levels;
  const int32_t *start; /* of levels + 1: rows, from 1 */
};

/* Nodes of one level in a part of a stage, see recursive_unroll.c. */
struct piece {
  int32_t row, first, nodes; /* its first row, its first node in the order of rows, how many there are */
  int32_t level;
};

/* Levels that are gone through several at a time. */
struct parts {
  int64_t depth, stages;     /* levels of a stage; stages */
  const int32_t *part;       /* of stages + 1: their first parts */
  const struct piece *piece; /* `depth` of each part */
  int64_t rows;              /* in all */
  int64_t scratch;           /* numbers of scratch memory that a piece needs at most */
};

/* How a group is gone through. */
enum { HBTVM_BY_LEVEL = 0, HBTVM_BY_PARTS = 1, HBTVM_NO_PARTS = -1 };

/* The arguments of a step, laid out once for each worker. */
struct step_call {
  struct value *values;
  struct tensor *tensors; /* shapes are behind */
};

/* Which nodes of a level a table has been filled for. */
struct filled {
  int64_t serial, at, tiles, tile;
};

/* The work memory of one thread, kept for the next call. */
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

/* What an executor knows of a program's main or tail steps beside their description. */
struct opened_steps {
  int64_t first_call;
  int64_t *unit; /* of each step: tiles of which threads may take any number; memory behind them is aligned */
};

struct opened_kernels {
  struct opened_steps steps[HBTVM_PROGRAMS][2]; /* by program; main, tail */
  int64_t threads;                 /* that a call may use */
};

struct recursive {
  const struct recursive_model *model;
  struct opened_kernels *kernels;
  int64_t threads; /* most that work on a call */
  int64_t calls;   /* steps of all kernels */
  int64_t spare;   /* rows behind the last level that a last tile may write */
  struct pool *pool;
  _Atomic(struct recursive_worker *) idle[HBTVM_RECURSIVE_IDLE];
};

/* One call, as all threads that work on it see it. */
struct recursive_call {
  struct recursive *recursive;
  const struct recursive_batch *batch;
  int64_t kernels; /* which */
  int64_t threads, groups;
  struct linear linear;
  struct recursive_worker *worker; /* the caller's, with the arrays of `linear` */
  float *out;
  _Atomic int status;
};

/* The level at hand, and where it lies. */
struct level {
  const struct recursive_call *call;
  int64_t serial; /* another one for each level that a worker sees in a call; at least 1 */
  int64_t program;
  int64_t row;   /* of its first node */
  int64_t nodes; /* in it */
  const int32_t *node;
  int64_t main, tail; /* tiles */
  float *state;       /* of the group */
  int64_t rows;       /* of `state` */
  float *scratch;     /* of the level */
};

/* At least so many bytes; null where there are none. What was in it is lost. */
void *hbtvm_reserve(struct room *room, size_t bytes);

struct recursive_worker *hbtvm_recursive_take(struct recursive *recursive);
void hbtvm_recursive_give(struct recursive *recursive, struct recursive_worker *worker);
void hbtvm_free_worker(const struct recursive *recursive, struct recursive_worker *worker);

/* Check a batch, find levels and results; an enum recursive_status. */
int hbtvm_linearize(const struct recursive_model *model, const struct recursive_batch *batch,
                    struct recursive_worker *worker, struct linear *linear, struct recursive_place *place);

/* Put structures into groups. */
void hbtvm_choose_groups(struct recursive_call *call);

/* Give the nodes of a group rows, of which it tells `first`, `stop` and `first_node`; 0 if there is no memory. */
int hbtvm_group(const struct recursive_batch *batch, struct recursive_worker *worker, const struct linear *linear,
                struct group *group);

/* Put the nodes of a group, which have rows, into parts and give them new rows, where its kernels ask for that and
 * no node has several parents. Returns HBTVM_BY_PARTS; HBTVM_BY_LEVEL, and rows are as they were; or HBTVM_NO_PARTS
 * if there is no memory. */
int hbtvm_parts(const struct recursive_call *call, struct recursive_worker *worker, const struct group *group,
                struct parts *parts);

/* Run share k of m of a stage; `of` tells where the group lies. Returns an enum status. */
int hbtvm_run_parts(struct recursive_worker *worker, const struct level *of, const struct parts *parts, int64_t stage,
                    int64_t k, int64_t m);

/* Numbers of scratch memory that a level needs. */
int64_t hbtvm_scratch_numbers(const struct recursive *recursive, int64_t kernels, int64_t program, int64_t nodes);

/* Run part k of m of a step of a level, of its main or tail steps. Returns an enum status. */
int hbtvm_step_part(struct recursive_worker *worker, const struct level *level, int64_t tail, int64_t step, int64_t k,
                    int64_t m);

/* Call a step on no tiles. */
int hbtvm_step_check(struct recursive *recursive, struct recursive_worker *worker, int64_t kernels, int64_t program,
                     int64_t tail, int64_t step);

/* Write the results of a group. Returns an enum status. */
int hbtvm_read_out(const struct recursive_call *call, struct recursive_worker *worker, const struct group *group,
                   const float *state);

/* Compute groups of structures that threads have taken, or each together. Fills in `status`. */
void hbtvm_run_groups(struct recursive_call *call);

static inline int64_t tiles_of(int64_t nodes, int64_t tile) { return (nodes + tile - 1) / tile; }

/* The class of a level's nodes: children of those of level 1 are all of level 0. */
static inline int64_t class_of(const struct recursive_kernels *kernels, int64_t level) {
  if (level == 1 && kernels->program[HBTVM_FIRST].main.count) return HBTVM_FIRST;
  return level > 0 ? HBTVM_INNER : HBTVM_LEAF;
}

/* Tiles of a level's main and tail steps. */
static inline void split_level(const struct recursive_program *program, int64_t nodes, int64_t *main, int64_t *tail) {
  int64_t rest = nodes % program->main.tile;
  int by_tail = rest && rest <= program->tail_most;
  *main = nodes / program->main.tile + (rest && !by_tail);
  *tail = by_tail ? tiles_of(rest, program->tail.tile) : 0;
}

#endif
