/* The executor of recursive models: states of all nodes of sequences, trees or directed acyclic graphs, level by level.
 *
 * A call takes structures, finds each node's level (0 without children, else one more than the highest level of its
 * children), assigns rows to nodes level by level, runs a program of kernels on each level, and reads results from the
 * rows (Cortex, MLSys'21, sections 4.2 and 5: linearisation and dynamic batching). A model's description is constant
 * data, which must outlive the executor. Any thread may call. There is no global state.
 */
#ifndef HBTVM_RECURSIVE_H
#define HBTVM_RECURSIVE_H

#include <stdint.h>

#include "executor/executor.h"

#define HBTVM_RECURSIVE_VERSION 1

/* The role of a kernel's argument. A tile of a level has R nodes; T tiles are computed per call. */
enum recursive_role {
  HBTVM_STATE = 0,   /* float32 [rows, S]: rows of all nodes */
  HBTVM_CHILD = 1,   /* int32 [T, R, C]: rows of children, 0 if absent; if their number is unlimited, C is the maximum
                      * over these nodes, at least 1 */
  HBTVM_NUMBER = 2,  /* int32 [T, R]: input `number` */
  HBTVM_VECTOR = 3,  /* float32 [T, R, size]: input `number` */
  HBTVM_SCRATCH = 4, /* float32 [T, R, width]: scratch memory `number` of the program */
  HBTVM_TABLE = 5,   /* table `number` of the kernels */
  HBTVM_SPAN = 6,    /* int32 [2]: range of panels to compute (start, stop) */
  HBTVM_OUT = 7      /* float32 [T, R, S]: rows of the tiles' nodes */
};

enum recursive_share { HBTVM_NOTHING = 0, HBTVM_STRUCTURES = 1, HBTVM_NODES = 2, HBTVM_PANELS = 3 };

enum recursive_over { HBTVM_ROOTS = 0, HBTVM_EACH = 1, HBTVM_TOTAL = 2, HBTVM_MEAN = 3, HBTVM_MOST = 4 };

struct recursive_argument {
  int32_t role, number;
};

struct recursive_step {
  kernel_function *function;
  void *self;
  const struct recursive_argument *arguments;
  int64_t count;  /* of arguments */
  int64_t panels; /* panels that threads may share; 0: takes no span */
};

/* Steps for nodes in tiles of one size, in order. */
struct recursive_steps {
  const struct recursive_step *step;
  int64_t count;
  int64_t tile;
};

/* The program of a level: whole tiles by `main`, up to `tail_most` remaining nodes by `tail`, more by `main`. */
struct recursive_program {
  struct recursive_steps main, tail;
  int64_t tail_most; /* 0: no tail */
  const int64_t *scratch; /* width of each scratch memory */
  int64_t scratches;
};

/* Classes of nodes: without children; with children; and, if it has steps, with childless children. */
enum recursive_class { HBTVM_LEAF = 0, HBTVM_INNER = 1, HBTVM_FIRST = 2, HBTVM_PROGRAMS = 3 };

/* Kernels tuned for calls of `structures` structures. */
struct recursive_kernels {
  int64_t structures, threads;
  double seconds; /* negative if not measured */
  int32_t share;  /* enum recursive_share */
  int32_t depth;  /* levels that a thread computes between barriers, with the subtrees below (if no node has several
                   * parents); 0 and 1: one level. Formerly part of `share`, and so 0 */
  struct recursive_program program[HBTVM_PROGRAMS]; /* enum recursive_class */
  const struct table *tables;
  int64_t count; /* of tables */
};

struct recursive_input {
  int64_t is_vector;
  int64_t size;     /* of a vector; 0 for numbers */
  int64_t optional; /* whether numbers may be -1 */
};

struct recursive_model {
  int64_t version;  /* HBTVM_RECURSIVE_VERSION */
  int64_t children; /* places for children; -1: unlimited */
  int64_t width;    /* S, a multiple of 16 */
  int64_t state;    /* offset in a row of the state to read */
  int64_t rows, columns; /* its shape; each of its rows is padded to a multiple of 16 */
  int64_t over;     /* enum recursive_over: the nodes to read */
  const struct recursive_input *inputs;
  int64_t input_count;
  const struct recursive_kernels *kernels; /* at least one */
  int64_t count;
};

/* Structures of a call, see `hbtvm.runtime.recursive.structures`. */
struct recursive_batch {
  int64_t structures, nodes, edges;
  const int64_t *starts; /* structures + 1 */
  const int32_t *first;  /* nodes + 1 */
  const int32_t *child;  /* edges; -1: an empty place */
  const void *const *inputs; /* int32 (nodes,) or float32 (nodes, size) */
};

/* Results of calls, besides `enum status`. `place` has the structure, and the node within it, or -1. */
enum recursive_status {
  HBTVM_BAD_ARRAYS = 20,   /* `starts` or `first` do not rise from 0 to the end */
  HBTVM_CYCLE = 21,        /* the node depends on itself */
  HBTVM_CHILD_OUTSIDE = 22, /* a child of the node is not in its structure */
  HBTVM_MANY_CHILDREN = 23,
  HBTVM_NUMBER_OUTSIDE = 24,
  HBTVM_MORE_RESULTS = 25, /* than `out` has room for */
  HBTVM_TOO_LARGE = 26     /* more than 2^31 - 2^16 nodes or edges */
};

struct recursive_place {
  int64_t structure, node;
  int64_t input; /* index of the input */
};

struct recursive;

/* Open a model. `threads`: as for `hbtvm_open`. Null if memory is short. */
struct recursive *hbtvm_recursive_open(const struct recursive_model *model, int64_t threads);

/* Stop the threads and free the executor. No call may be running. Null is allowed. */
void hbtvm_recursive_close(struct recursive *recursive);

/* Call each step without tiles, so that it checks its arguments. Returns -1 if none refuses them, -2 if memory is
 * short, else kernels * 1024 + step: the index of the kernels, and of their step, counted through the main and tail
 * steps of the leaves' program and then of the others'. */
int64_t hbtvm_recursive_check(struct recursive *recursive);

/* Start or stop setting states and scratch memory to NaN before they are computed; no call may be running. `on`: 0 for
 * no; 1; or the number of parts of each step that one thread then computes one after the other, the last first, so that
 * a part that reads or overwrites another's results shows. */
void hbtvm_recursive_poison(struct recursive *recursive, int64_t on);

/* Return the index of the kernels for a number of structures. */
int64_t hbtvm_recursive_choice(const struct recursive *recursive, int64_t structures);

/* Compute the results of structures.
 *
 * `out`: float32, results x (rows * columns) of the model, in the order of structures and nodes. `results`: the number
 * of results for which `out` has room; set to the actual number, of roots, nodes or structures. With
 * HBTVM_MORE_RESULTS, nothing else is computed. `threads`: the maximal number of threads for this call; 0 for the
 * executor's. `place` may be null. On an error, the contents of `out` are undefined.
 */
int hbtvm_recursive_run(struct recursive *recursive, const struct recursive_batch *batch, float *out,
                        int64_t *results, int64_t threads, struct recursive_place *place);

/* Compute a batch's levels and rows only. `row`: int32 (nodes,), each node's row, 1 for the first node of level 0;
 * `level_start`: int32 (nodes + 1,), the first row of each level, and the stop of the last. Returns the number of
 * levels, or a negative enum status. */
int64_t hbtvm_recursive_levels(struct recursive *recursive, const struct recursive_batch *batch, int32_t *row,
                               int32_t *level_start, struct recursive_place *place);

/* HBTVM_RECURSIVE_VERSION, and sizes of structures in the order of this file, for the loader's check. */
int64_t hbtvm_recursive_version(void);
int64_t hbtvm_recursive_size(int64_t which);

#endif
