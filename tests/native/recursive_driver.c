/* The executor of recursive models on a cell in plain C: against a recursion node by node, with all ways to share, from
 * several callers, with arrays that are no structures, and with too little memory. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recursive/rows.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "../recursive_cell.c"
#pragma GCC diagnostic pop

enum { WIDTH = 48, COLUMNS = 43, WORDS = 20, PLACES = 3, MOST = 6000 };

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);       \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

/* Allocations that still succeed; negative: all. */
static _Atomic int64_t allowed = -1;

static int fails(void) {
  int64_t left = atomic_load(&allowed);
  if (left < 0) return 0;
  if (!left) return 1;
  atomic_fetch_sub(&allowed, 1);
  return 0;
}

void *__real_calloc(size_t count, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
  return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

static uint64_t state = 88172645463325252u;

static int64_t drawn(int64_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (int64_t)(state % (uint64_t)below);
}

/* Structures with their inputs. */
struct some {
  struct recursive_batch batch;
  int64_t starts[64];
  int32_t first[MOST + 1], child[PLACES * MOST], word[MOST];
  float vector[MOST * WIDTH];
  const void *inputs[2];
};

enum { GRAPHS, CHAINS, TREES };

/* Structures of these sizes, whose nodes have up to PLACES children, with nodes in any order. */
static struct some *some(const int64_t *sizes, int64_t count, int kind, int shuffled) {
  struct some *own = calloc(1, sizeof *own);
  int64_t nodes = 0;
  for (int64_t b = 0; b < count; ++b) nodes += sizes[b];
  static int32_t place[MOST], of[MOST], free_node[MOST];
  static int32_t below[MOST][PLACES];
  int64_t at = 0;
  for (int64_t b = 0; b < count; at += sizes[b++]) {
    own->starts[b + 1] = at + sizes[b];
    for (int64_t v = 0; v < sizes[b]; ++v) place[v] = (int32_t)v;
    for (int64_t v = sizes[b] - 1; shuffled && v > 0; --v) {
      int64_t w = drawn(v + 1);
      int32_t kept = place[v];
      place[v] = place[w];
      place[w] = kept;
    }
    for (int64_t v = 0; v < sizes[b]; ++v) of[place[v]] = (int32_t)v;
    int64_t free_nodes = 0;
    for (int64_t v = 0; v < sizes[b]; ++v) {
      int64_t children = kind == CHAINS ? v > 0 : drawn(PLACES + 1);
      for (int64_t i = 0; i < PLACES; ++i) {
        if (kind == TREES && i < children && free_nodes) {
          int64_t taken = drawn(free_nodes);
          below[v][i] = free_node[taken];
          free_node[taken] = free_node[--free_nodes];
        } else if (kind != TREES && i < children) {
          below[v][i] = (int32_t)(kind == CHAINS ? v - 1 : v ? drawn(v + 1) - 1 : -1);
        } else {
          below[v][i] = -2;
        }
      }
      free_node[free_nodes++] = (int32_t)v;
    }
    for (int64_t p = 0; p < sizes[b]; ++p) {
      int64_t v = of[p], edges = own->batch.edges;
      for (int64_t i = 0; i < PLACES && below[v][i] > -2; ++i) {
        own->child[edges++] = below[v][i] < 0 ? -1 : (int32_t)at + place[below[v][i]];
      }
      own->batch.edges = edges;
      own->first[at + p + 1] = (int32_t)edges;
    }
  }
  for (int64_t v = 0; v < nodes; ++v) own->word[v] = (int32_t)drawn(WORDS + 1) - 1;
  for (int64_t i = 0; i < nodes * WIDTH; ++i) own->vector[i] = (float)drawn(1000) / 2000 - 0.25f;
  own->inputs[0] = own->word;
  own->inputs[1] = own->vector;
  own->batch = (struct recursive_batch){count, nodes, own->batch.edges, own->starts, own->first, own->child,
                                        own->inputs};
  return own;
}

static _Alignas(64) float emb[WORDS * WIDTH];

/* State of a node and of all below, as far as it is not known. */
static void visit(const struct some *own, float *states, char *known, int32_t *level, int64_t v) {
  if (known[v]) return;
  known[v] = 1;
  float sum[WIDTH] = {0};
  for (int32_t e = own->first[v]; e < own->first[v + 1]; ++e) {
    int32_t c = own->child[e];
    if (c < 0) continue;
    visit(own, states, known, level, c);
    if (level[c] >= level[v]) level[v] = level[c] + 1;
    for (int64_t i = 0; i < WIDTH; ++i) sum[i] += states[c * WIDTH + i];
  }
  node(sum, own->word[v], emb, WIDTH, own->vector + v * WIDTH, states + v * WIDTH, 0, WIDTH);
}

static const struct recursive_argument LEAF[] = {{HBTVM_NUMBER, 0}, {HBTVM_VECTOR, 1}, {HBTVM_TABLE, 0}, {HBTVM_OUT, 0}};
static const struct recursive_argument GATHER[] = {{HBTVM_STATE, 0}, {HBTVM_CHILD, 0}, {HBTVM_SCRATCH, 0}};
static const struct recursive_argument CELL[] = {{HBTVM_SCRATCH, 0}, {HBTVM_NUMBER, 0}, {HBTVM_VECTOR, 1},
                                                 {HBTVM_TABLE, 0},   {HBTVM_SPAN, 0},   {HBTVM_OUT, 0}};
static const struct recursive_argument FAILS[] = {{HBTVM_OUT, 0}};

static const int64_t table_shape[] = {WORDS, WIDTH}, scratch_width[] = {WIDTH};
static const struct table table = {emb, table_shape, 2, 2, 32, 0};
static const struct recursive_input INPUTS[] = {{0, WORDS, 1}, {1, WIDTH, 0}};

#define FUNCTION(name) ((kernel_function *)(uintptr_t)(name))

/* A model with all that its description points to. */
struct whole {
  struct recursive_step leaf[1], main[2], tail[2];
  struct recursive_kernels kernels[2];
  struct recursive_model model;
};

static struct whole *whole(int64_t share, int32_t depth, int64_t threads, int64_t over, int64_t children) {
  struct whole *own = calloc(1, sizeof *own);
  own->leaf[0] = (struct recursive_step){FUNCTION(__tvm_ffi_leaf), NULL, LEAF, 4, 0};
  own->main[0] = (struct recursive_step){FUNCTION(__tvm_ffi_gather), NULL, GATHER, 3, 0};
  own->tail[0] = (struct recursive_step){FUNCTION(__tvm_ffi_gather_tail), NULL, GATHER, 3, 0};
  own->main[1] = own->tail[1] = (struct recursive_step){FUNCTION(__tvm_ffi_cell), NULL, CELL, 6, WIDTH / 16};
  struct recursive_program leaf = {{own->leaf, 1, 8}, {NULL, 0, 1}, 0, NULL, 0};
  struct recursive_program inner = {{own->main, 2, 4}, {own->tail, 2, 2}, 3, scratch_width, 1};
  for (int k = 0; k < 2; ++k) {
    own->kernels[k] = (struct recursive_kernels){
        k ? 10 : 1, threads, -1, (int32_t)share, depth, {leaf, inner}, &table, 1};
  }
  own->model = (struct recursive_model){HBTVM_RECURSIVE_VERSION, children, WIDTH, 0, 1, COLUMNS, over, INPUTS, 2,
                                        own->kernels, 2};
  return own;
}

static float *computed(struct recursive *recursive, const struct some *own, int64_t expected, int64_t threads) {
  int64_t results = 0;
  float none[1];
  int status = hbtvm_recursive_run(recursive, &own->batch, none, &results, threads, NULL);
  EXPECT(results == expected && status == (expected ? HBTVM_MORE_RESULTS : HBTVM_OK));
  float *out = calloc((size_t)(expected * COLUMNS) + 1, sizeof *out);
  EXPECT(hbtvm_recursive_run(recursive, &own->batch, out, &results, threads, NULL) == HBTVM_OK);
  return out;
}

static void compare(struct recursive *recursive, const struct some *own, int64_t threads, const float *same) {
  int64_t nodes = own->batch.nodes;
  float *states = calloc((size_t)(nodes * WIDTH) + 1, sizeof *states);
  char *known = calloc((size_t)nodes + 1, 1);
  int32_t *level = calloc((size_t)nodes + 1, sizeof *level), *row = calloc((size_t)nodes + 1, sizeof *row);
  int32_t *start = calloc((size_t)nodes + 1, sizeof *start);
  for (int64_t v = 0; v < nodes; ++v) visit(own, states, known, level, v);
  float *out = computed(recursive, own, nodes, threads);
  for (int64_t v = 0; v < nodes; ++v) {
    for (int64_t i = 0; i < COLUMNS; ++i) EXPECT(fabsf(out[v * COLUMNS + i] - states[v * WIDTH + i]) < 2e-6f);
  }
  EXPECT(!same || !memcmp(same, out, (size_t)(nodes * COLUMNS) * sizeof *out));
  int64_t levels = hbtvm_recursive_levels(recursive, &own->batch, row, start, NULL);
  EXPECT(levels >= 0 && start[levels] == nodes + 1);
  for (int64_t v = 0; v < nodes; ++v) {
    EXPECT(start[level[v]] <= row[v] && row[v] < start[level[v] + 1]);
    /* Nodes of a level keep their order; so no two have the same row. */
    for (int64_t w = v - 1; w >= 0 && w > v - 50; --w) EXPECT(level[w] != level[v] || row[w] < row[v]);
  }
  free(states), free(known), free(level), free(row), free(start), free(out);
}

static const int64_t SIZES[] = {1, 40, 0, 7, 120, 2, 2, 2, 60, 33};

static void any_structures(void) {
  static const int32_t depths[] = {0, 2, 3};
  for (int kind = 0; kind < 4 * 2 * 2 * 3; ++kind) {
    int64_t share = kind % 4, threads = kind / 4 % 2 ? 3 : 2;
    struct whole *model = whole(share, depths[kind / 16], threads, HBTVM_EACH, kind / 8 % 2 ? -1 : PLACES);
    struct recursive *recursive = hbtvm_recursive_open(&model->model, 0);
    struct recursive *alone = hbtvm_recursive_open(&model->model, 1), *many = hbtvm_recursive_open(&model->model, 4);
    EXPECT(recursive && alone && many && hbtvm_recursive_check(recursive) == -1);
    for (int way = kind / 4 % 2; way < 6; way += 2) {
      int of = way == 3 ? CHAINS : way > 3 || kind >= 16 ? TREES : GRAPHS;
      struct some *own = some(SIZES, way == 2 ? 0 : 10, way > 3 && kind >= 16 ? GRAPHS : of, way % 2);
      float *same = computed(alone, own, own->batch.nodes, 0);
      compare(recursive, own, 0, same);
      compare(recursive, own, 1, same);
      compare(many, own, 0, same);
      free(same), free(own);
    }
    hbtvm_recursive_close(recursive), hbtvm_recursive_close(alone), hbtvm_recursive_close(many);
    free(model);
  }
}

static void chain(void) {
  for (int32_t depth = 1; depth < 8; depth += 6) {
    struct whole *model = whole(HBTVM_NODES, depth, 2, HBTVM_EACH, PLACES);
    struct recursive *recursive = hbtvm_recursive_open(&model->model, 2);
    int64_t size = 5000;
    for (int shuffled = 0; shuffled < 2; ++shuffled) {
      struct some *own = some(&size, 1, CHAINS, shuffled);
      compare(recursive, own, 1, NULL);
      free(own);
    }
    hbtvm_recursive_close(recursive);
    free(model);
  }
}

/* Readouts of one structure with two roots, and of one without nodes. */
static void readouts(void) {
  struct some *own = some(SIZES, 0, GRAPHS, 0);
  int32_t first[] = {0, 0, 0, 2, 2}, child[] = {0, 1};
  memcpy(own->first, first, sizeof first);
  memcpy(own->child, child, sizeof child);
  own->starts[1] = own->starts[2] = 4;
  own->batch.structures = 2, own->batch.nodes = 4, own->batch.edges = 2;
  float states[4 * WIDTH];
  char known[4] = {0};
  int32_t level[4] = {0};
  for (int64_t v = 0; v < 4; ++v) visit(own, states, known, level, v);
  for (int64_t over = 0; over < 5; ++over) {
    struct whole *model = whole(HBTVM_NOTHING, 1, 1, over, PLACES);
    struct recursive *recursive = hbtvm_recursive_open(&model->model, 0);
    int64_t results = over == HBTVM_ROOTS ? 2 : over == HBTVM_EACH ? 4 : 2;
    float *out = computed(recursive, own, results, 0);
    for (int64_t i = 0; i < COLUMNS; ++i) {
      float a = states[i], b = states[WIDTH + i], c = states[2 * WIDTH + i], d = states[3 * WIDTH + i];
      float most = fmaxf(fmaxf(a, b), fmaxf(c, d)), total = a + b + c + d;
      if (over == HBTVM_ROOTS) EXPECT(fabsf(out[i] - c) < 1e-6f && fabsf(out[COLUMNS + i] - d) < 1e-6f);
      if (over == HBTVM_TOTAL) EXPECT(fabsf(out[i] - total) < 1e-5f);
      if (over == HBTVM_MEAN) EXPECT(fabsf(out[i] - total / 4) < 1e-6f);
      if (over == HBTVM_MOST) EXPECT(fabsf(out[i] - most) < 1e-6f);
      if (over > HBTVM_EACH) EXPECT(out[COLUMNS + i] == 0);
    }
    free(out);
    hbtvm_recursive_close(recursive);
    free(model);
  }
  free(own);
}

/* Arrays with a wrong number: refused with a place, or as good as others. */
static void hostile(void) {
  struct whole *model = whole(HBTVM_NODES, 2, 2, HBTVM_ROOTS, PLACES);
  struct recursive *recursive = hbtvm_recursive_open(&model->model, 2);
  static const int32_t wrong[] = {-1, -2, 0, 1, 5, 41, 300, 266, 267, 100000, INT32_MAX, INT32_MIN};
  int64_t seen[32] = {0};
  float *out = calloc(MOST * COLUMNS, sizeof *out);
  for (int round = 0; round < 600; ++round) {
    static struct some *kept;
    if (!kept) kept = some(SIZES, 10, TREES, 1);
    struct some *own = malloc(sizeof *own);
    memcpy(own, kept, sizeof *own);
    own->inputs[0] = own->word, own->inputs[1] = own->vector;
    own->batch.starts = own->starts, own->batch.first = own->first, own->batch.child = own->child;
    own->batch.inputs = own->inputs;
    int32_t value = wrong[drawn(12)];
    switch (drawn(5)) {
      case 0: own->starts[drawn(11)] = value; break;
      case 1: own->first[drawn(own->batch.nodes + 1)] = value; break;
      case 2: own->child[drawn(own->batch.edges)] = value; break;
      case 3: own->word[drawn(own->batch.nodes)] = value; break;
      default: own->child[drawn(own->batch.edges)] = (int32_t)drawn(own->batch.nodes); break;
    }
    struct recursive_place place;
    int64_t results = MOST;
    int status = hbtvm_recursive_run(recursive, &own->batch, out, &results, 0, &place);
    EXPECT(status == HBTVM_OK || (status >= HBTVM_BAD_ARRAYS && status <= HBTVM_NUMBER_OUTSIDE));
    ++seen[status];
    EXPECT(place.structure >= -1 && place.structure < 10 && place.node < 267);
    if (status == HBTVM_NUMBER_OUTSIDE) {
      EXPECT(place.input == 0);
      int32_t word = own->word[own->starts[place.structure] + place.node];
      EXPECT(word < -1 || word >= WORDS);
    }
    free(own);
  }
  for (int64_t status = HBTVM_BAD_ARRAYS; status <= HBTVM_NUMBER_OUTSIDE; ++status) EXPECT(seen[status]);
  free(out);
  hbtvm_recursive_close(recursive);
  free(model);
}

static void failing_kernel(void) {
  for (int64_t share = 0; share < 4; ++share) {
    struct whole *model = whole(share, 2, 2, HBTVM_EACH, PLACES);
    model->main[1] = (struct recursive_step){FUNCTION(__tvm_ffi_fails), NULL, FAILS, 1, 0};
    struct recursive *recursive = hbtvm_recursive_open(&model->model, 2);
    struct some *own = some(SIZES, 10, share % 2 ? TREES : GRAPHS, 0);
    int64_t results = MOST;
    float *out = calloc(MOST * COLUMNS, sizeof *out);
    EXPECT(hbtvm_recursive_run(recursive, &own->batch, out, &results, 0, NULL) == HBTVM_KERNEL_FAILED);
    free(out), free(own);
    hbtvm_recursive_close(recursive);
    free(model);
  }
}

/* Calls, each of whose allocations fails once. */
static void little_memory(void) {
  struct some *own = some(SIZES, 10, TREES, 1);
  float *out = calloc(MOST * COLUMNS, sizeof *out);
  for (int64_t share = 0; share < 4; ++share) {
    struct whole *model = whole(share, 1 + (int32_t)share % 3, 2, HBTVM_TOTAL, -1);
    int done = 0;
    for (int64_t i = 0; !done; ++i) {
      EXPECT(i < 200);
      atomic_store(&allowed, i);
      struct recursive *recursive = hbtvm_recursive_open(&model->model, 1);
      int64_t results = MOST;
      int status = recursive ? hbtvm_recursive_run(recursive, &own->batch, out, &results, 0, NULL) : HBTVM_NO_MEMORY;
      EXPECT(status == HBTVM_OK || status == HBTVM_NO_MEMORY);
      atomic_store(&allowed, -1);
      done = status == HBTVM_OK;
      hbtvm_recursive_close(recursive);
    }
    free(model);
  }
  free(out), free(own);
}

struct caller {
  struct recursive *recursive;
  const struct some *own;
  const float *same;
};

static void *call_often(void *given) {
  struct caller *caller = given;
  for (int i = 0; i < 8; ++i) {
    float *out = computed(caller->recursive, caller->own, caller->own->batch.nodes, 0);
    EXPECT(!memcmp(out, caller->same, (size_t)(caller->own->batch.nodes * COLUMNS) * sizeof *out));
    free(out);
  }
  return NULL;
}

static void several_callers(int forks) {
  for (int64_t share = 1; share < 6; ++share) {
    struct whole *model = whole(share < 4 ? share : HBTVM_NODES, share < 4 ? 1 : (int32_t)share - 2, 3, HBTVM_EACH, PLACES);
    struct recursive *recursive = hbtvm_recursive_open(&model->model, 3);
    struct some *own[3];
    struct caller caller[3];
    pthread_t thread[3];
    for (int i = 0; i < 3; ++i) {
      own[i] = some(SIZES, 10 - i, share < 4 ? GRAPHS : TREES, i % 2);
      caller[i] = (struct caller){recursive, own[i], computed(recursive, own[i], own[i]->batch.nodes, 1)};
    }
    for (int i = 0; i < 3; ++i) EXPECT(!pthread_create(&thread[i], NULL, call_often, &caller[i]));
    for (int i = 0; i < 3; ++i) pthread_join(thread[i], NULL);
    if (forks) {
      pid_t child = fork();
      if (!child) {
        call_often(&caller[0]);
        hbtvm_recursive_close(recursive);
        _exit(7);
      }
      int status;
      EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    hbtvm_recursive_close(recursive);
    for (int i = 0; i < 3; ++i) free(own[i]), free((void *)(uintptr_t)caller[i].same);
    free(model);
  }
}

static _Atomic int64_t inside, met;

/* The cell, in which a thread waits a little for another one. */
static int meeting(void *self, const void *args, int32_t count, void *result) {
  atomic_fetch_add(&inside, 1);
  for (int i = 0; i < 2000 && !atomic_load(&met); ++i) {
    if (atomic_load(&inside) > 1) atomic_store(&met, 1);
    sched_yield();
    usleep(10);
  }
  int status = __tvm_ffi_cell(self, args, count, result);
  atomic_fetch_sub(&inside, 1);
  return status;
}

/* Several threads are at work on a call, for certain: a helper that came too late for a level comes to a later one. */
static void threads_work(void) {
  int64_t sizes[20];
  for (int i = 0; i < 20; ++i) sizes[i] = 50;
  struct some *own = some(sizes, 20, CHAINS, 0);
  for (int64_t way = 1; way < 6; ++way) {
    int64_t share = way < 4 ? way : HBTVM_NODES;
    struct whole *model = whole(share, way < 4 ? 1 : (int32_t)way - 2, 2, HBTVM_EACH, PLACES);
    model->main[1].function = meeting;
    struct recursive *recursive = hbtvm_recursive_open(&model->model, 2);
    atomic_store(&met, 0);
    compare(recursive, own, 0, NULL);
    EXPECT(atomic_load(&met));
    hbtvm_recursive_close(recursive);
    free(model);
  }
  free(own);
}

/* The kernels for the nearest number of structures, and the faster of two for the same. */
static void choices(void) {
  struct whole *model = whole(HBTVM_NOTHING, 1, 1, HBTVM_EACH, PLACES);
  struct recursive *recursive = hbtvm_recursive_open(&model->model, 1);
  static const int64_t structures[] = {0, 1, 3, 4, 10, 1000}, wanted[] = {0, 0, 0, 1, 1, 1};
  for (int i = 0; i < 6; ++i) EXPECT(hbtvm_recursive_choice(recursive, structures[i]) == wanted[i]);
  model->kernels[1].structures = 1;
  model->kernels[0].seconds = 2e-6, model->kernels[1].seconds = 1e-6;
  EXPECT(hbtvm_recursive_choice(recursive, 5) == 1);
  model->kernels[0].seconds = 0.5e-6;
  EXPECT(hbtvm_recursive_choice(recursive, 5) == 0);
  hbtvm_recursive_close(recursive);
  free(model);
}

/* States by row, as kernels elsewhere compute them, from what `hbtvm_recursive_fill` wrote. */
static float *states_by_row(const struct recursive_rows *rows, int64_t nodes, const int32_t *child,
                            const int32_t *word, const float *vector) {
  float *states = calloc((size_t)((nodes + 1) * WIDTH), sizeof *states);
  for (int64_t l = 0; l < rows->levels; ++l) {
    for (int64_t r = rows->start[l]; r < rows->start[l + 1]; ++r) {
      float sum[WIDTH] = {0};
      for (int64_t j = 0; j < rows->arity; ++j) {
        int32_t c = child[r * rows->arity + j];
        EXPECT(0 <= c && c < rows->start[l]);
        for (int64_t i = 0; i < WIDTH; ++i) sum[i] += states[c * WIDTH + i];
      }
      node(sum, word[r], emb, WIDTH, vector + r * WIDTH, states + r * WIDTH, 0, WIDTH);
    }
  }
  return states;
}

/* Linearisation and readout one by one give what a call gives. */
static void by_row(void) {
  for (int way = 0; way < 20; ++way) {
    int64_t over = way / 2 % 5;
    struct whole *model = whole(0, 1, 1, over, way % 2 ? -1 : PLACES);
    struct recursive *recursive = hbtvm_recursive_open(&model->model, 1);
    struct some *own = some(SIZES, way > 17 ? 0 : 10, way % 3, way / 10);
    struct recursive_rows rows;
    EXPECT(hbtvm_recursive_begin(recursive, &own->batch, &rows, NULL) == HBTVM_OK);
    size_t places = (size_t)own->batch.nodes + 1, results = (size_t)rows.results * COLUMNS + 1;
    int32_t *child = malloc(places * (size_t)rows.arity * sizeof *child), *word = malloc(places * sizeof *word);
    float *vector = malloc(places * WIDTH * sizeof *vector);
    hbtvm_recursive_fill(recursive, &own->batch, &rows, child, (void *[]){word, vector});
    float *states = states_by_row(&rows, own->batch.nodes, child, word, vector);
    /* What is below the first row that is read is never looked at. */
    for (int64_t i = 0; i < rows.first_read * WIDTH; ++i) states[i] = NAN;
    float *found = calloc(results, sizeof *found), *same = computed(recursive, own, rows.results, 0);
    EXPECT(hbtvm_recursive_read(recursive, &own->batch, &rows, states, found) == HBTVM_OK);
    for (size_t i = 0; i + 1 < results; ++i) EXPECT(fabsf(found[i] - same[i]) <= 2e-6f * fmaxf(1, fabsf(same[i])));
    hbtvm_recursive_end(recursive, &rows);
    free(child), free(word), free(vector), free(states), free(found), free(same), free(own);
    hbtvm_recursive_close(recursive);
    free(model);
  }
}

/* Wherever memory ends, a call that was not begun leaves nothing behind. */
static void little_memory_by_row(void) {
  struct whole *model = whole(0, 1, 1, HBTVM_EACH, PLACES);
  struct some *own = some(SIZES, 10, GRAPHS, 0);
  struct recursive_rows rows;
  int status = HBTVM_NO_MEMORY;
  for (int64_t most = 0; status; ++most) {
    struct recursive *recursive = hbtvm_recursive_open(&model->model, 1);
    atomic_store(&allowed, most);
    status = hbtvm_recursive_begin(recursive, &own->batch, &rows, NULL);
    atomic_store(&allowed, -1);
    EXPECT(status == HBTVM_OK || status == HBTVM_NO_MEMORY);
    EXPECT(most < 100 && (status || most > 3));
    if (!status) hbtvm_recursive_end(recursive, &rows);
    hbtvm_recursive_close(recursive);
  }
  free(own), free(model);
}

int main(int count, char **arguments) {
  (void)arguments;
  for (int i = 0; i < WORDS * WIDTH; ++i) emb[i] = (float)drawn(1000) / 1000 - 0.5f;
  any_structures();
  chain();
  readouts();
  hostile();
  failing_kernel();
  little_memory();
  by_row();
  little_memory_by_row();
  several_callers(count == 1);
  choices();
  threads_work();
  printf("right\n");
  return 0;
}
