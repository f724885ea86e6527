/* Steps of a level: the tables of its nodes, and calls of kernels. */
#include <stdlib.h>
#include <string.h>

#include "recursive/internal.h"

/* TVM's type index of a borrowed tensor; DLPack's type codes, and its CPU. */
enum { TENSOR_POINTER = 7, INTEGERS = 0, FLOATS = 2, CPU = 1 };

#define MOST_AXES 3

/* Maximal entries of a table of children: if a node has thousands, nodes with fewer are called separately. */
#define CHILD_NUMBERS (1 << 20)

static const struct recursive_steps *steps_of(const struct recursive_program *program, int64_t tail) {
  return tail ? &program->tail : &program->main;
}

static void describe(struct tensor *tensor, uint8_t code, int64_t *shape, int64_t a, int64_t b, int64_t c) {
  tensor->device.type = CPU;
  tensor->dtype.code = code;
  tensor->dtype.bits = 32;
  tensor->dtype.lanes = 1;
  tensor->shape = shape;
  shape[0] = a;
  shape[1] = b;
  shape[2] = c;
  tensor->axes = b < 0 ? 1 : c < 0 ? 2 : 3;
}

static void describe_table(struct tensor *tensor, const struct table *table) {
  tensor->device.type = CPU;
  tensor->dtype.code = table->code;
  tensor->dtype.bits = table->bits;
  tensor->dtype.lanes = 1;
  tensor->axes = table->axes;
  /* Kernels only read their tables. */
  tensor->shape = (int64_t *)(uintptr_t)table->shape;
  tensor->data = (void *)(uintptr_t)table->data;
}

/* Lay out the arguments of a step, except those that change between calls; 0 if memory is short. */
static int lay_out(struct step_call *call, const struct recursive_model *model, const struct recursive_kernels *kernels,
                   const struct recursive_program *program, const struct recursive_steps *steps, int64_t step) {
  const struct recursive_step *own = &steps->step[step];
  size_t count = (size_t)own->count;
  char *memory = calloc(count + 1, sizeof(struct value) + sizeof(struct tensor) + MOST_AXES * sizeof(int64_t));
  if (!memory) return 0;
  call->tensors = (struct tensor *)(void *)memory;
  call->values = (struct value *)(void *)(call->tensors + count);
  int64_t *shape = (int64_t *)(void *)(call->values + count), tile = steps->tile, width = model->width;
  for (size_t i = 0; i < count; ++i, shape += MOST_AXES) {
    const struct recursive_argument *argument = &own->arguments[i];
    struct tensor *tensor = &call->tensors[i];
    switch (argument->role) {
      case HBTVM_STATE: describe(tensor, FLOATS, shape, 0, width, -1); break;
      case HBTVM_CHILD: describe(tensor, INTEGERS, shape, 0, tile, model->children < 0 ? 0 : model->children); break;
      case HBTVM_NUMBER: describe(tensor, INTEGERS, shape, 0, tile, -1); break;
      case HBTVM_VECTOR: describe(tensor, FLOATS, shape, 0, tile, model->inputs[argument->number].size); break;
      case HBTVM_SCRATCH: describe(tensor, FLOATS, shape, 0, tile, program->scratch[argument->number]); break;
      case HBTVM_TABLE: describe_table(tensor, &kernels->tables[argument->number]); break;
      case HBTVM_SPAN: describe(tensor, INTEGERS, shape, 2, -1, -1); break;
      default: describe(tensor, FLOATS, shape, 0, tile, width); break;
    }
    call->values[i].type = TENSOR_POINTER;
    call->values[i].is.pointer = tensor;
  }
  return 1;
}

static struct step_call *step_call(struct recursive *recursive, struct recursive_worker *worker, int64_t kernels,
                                   int64_t program, int64_t tail, int64_t step) {
  struct step_call *call = &worker->calls[recursive->kernels[kernels].steps[program][tail].first_call + step];
  if (call->values) return call;
  const struct recursive_kernels *own = &recursive->model->kernels[kernels];
  const struct recursive_program *of = &own->program[program];
  return lay_out(call, recursive->model, own, of, steps_of(of, tail), step) ? call : NULL;
}

/* Nodes of a level from `at` on, in this many tiles, with places for each node's children. */
struct run {
  int64_t at, tiles, tile, arity;
};

/* Return whether a table must be filled for a run, and mark it as filled. */
static int is_new(struct filled *filled, const struct level *level, const struct run *run) {
  const struct filled found = *filled;
  if (found.serial == level->serial && found.at == run->at && found.tiles == run->tiles && found.tile == run->tile) {
    return 0;
  }
  *filled = (struct filled){level->serial, run->at, run->tiles, run->tile};
  return 1;
}

/* The nodes of a run, and its places for children. */
static int64_t nodes_of(const struct level *level, const struct run *run, int64_t *places) {
  int64_t rest = level->nodes - run->at;
  *places = run->tiles * run->tile;
  return rest < *places ? rest : *places;
}

static void *fill_child(struct recursive_worker *worker, const struct level *level, const struct run *run) {
  const struct recursive_batch *batch = level->call->batch;
  int64_t places, nodes = nodes_of(level, run, &places), arity = run->arity;
  if (!is_new(&worker->child_filled, level, run)) return worker->child.at;
  int32_t *table = hbtvm_reserve(&worker->child, (size_t)(places * arity) * sizeof *table), *to = table;
  if (!table) return NULL;
  const int32_t *node = level->node + run->at, *row = level->call->linear.row + 1;
  for (int64_t i = 0; i < nodes; ++i, to += arity) {
    const int32_t *child = batch->child + batch->first[node[i]];
    int64_t children = batch->first[node[i] + 1] - batch->first[node[i]], j = 0;
    for (; j < children; ++j) to[j] = row[child[j]];
    for (; j < arity; ++j) to[j] = 0;
  }
  memset(to, 0, (size_t)((places - nodes) * arity) * sizeof *to);
  return table;
}

static void *fill_input(struct recursive_worker *worker, const struct level *level, const struct run *run,
                        int64_t input) {
  const struct recursive_input *known = &level->call->recursive->model->inputs[input];
  struct room *room = &worker->inputs[input];
  int64_t places, nodes = nodes_of(level, run, &places), size = known->is_vector ? known->size : 1;
  if (!is_new(&worker->input_filled[input], level, run)) return room->at;
  const int32_t *node = level->node + run->at;
  /* int32 and float32 have the same size, and zeros of both are zero bytes. */
  int32_t *table = hbtvm_reserve(room, (size_t)(places * size) * sizeof *table), *to = table;
  const int32_t *from = level->call->batch->inputs[input];
  if (!table) return NULL;
  if (known->is_vector) {
    for (int64_t i = 0; i < nodes; ++i, to += size) {
      memcpy(to, from + node[i] * size, (size_t)size * sizeof *to);
    }
  } else {
    for (int64_t i = 0; i < nodes; ++i) *to++ = from[node[i]];
  }
  memset(to, 0, (size_t)((places - nodes) * size) * sizeof *to);
  return table;
}

static int64_t rounded(int64_t numbers) { return (numbers + HBTVM_LANES - 1) / HBTVM_LANES * HBTVM_LANES; }

/* Return the start of scratch memory `which` of a level, for its main or tail steps, which follow each other. */
static int64_t scratch_at(const struct recursive_program *program, int64_t main, int64_t tail, int64_t which,
                          int64_t of_tail) {
  int64_t at = 0, places[2] = {main * program->main.tile, tail * program->tail.tile};
  for (int64_t i = 0; i < which; ++i) {
    at += rounded(places[0] * program->scratch[i]) + rounded(places[1] * program->scratch[i]);
  }
  return of_tail ? at + rounded(places[0] * program->scratch[which]) : at;
}

int64_t hbtvm_scratch_numbers(const struct recursive *recursive, int64_t kernels, int64_t program, int64_t nodes) {
  const struct recursive_program *own = &recursive->model->kernels[kernels].program[program];
  int64_t main, tail;
  split_level(own, nodes, &main, &tail);
  return own->scratches ? scratch_at(own, main, tail, own->scratches, 0) : 0;
}

static int call_step(const struct recursive_step *step, struct step_call *call) {
  struct value result = {0};
  if (step->function(step->self, call->values, (int32_t)step->count, &result)) return HBTVM_KERNEL_FAILED;
  return HBTVM_OK;
}

/* Return the tiles of an argument; null if memory is short. */
static void *place_of(struct recursive_worker *worker, const struct level *level, const struct run *run, int64_t tail,
                      int64_t first_tile, const struct recursive_argument *argument, int64_t *shape) {
  const struct recursive_call *call = level->call;
  const struct recursive_model *model = call->recursive->model;
  const struct recursive_program *program = &model->kernels[call->kernels].program[level->program];
  int64_t width;
  shape[0] = run->tiles;
  switch (argument->role) {
    case HBTVM_STATE: shape[0] = level->rows; return level->state;
    case HBTVM_CHILD: shape[2] = run->arity; return fill_child(worker, level, run);
    case HBTVM_NUMBER:
    case HBTVM_VECTOR: return fill_input(worker, level, run, argument->number);
    case HBTVM_SCRATCH:
      width = program->scratch[argument->number];
      return level->scratch + scratch_at(program, level->main, level->tail, argument->number, tail) +
             first_tile * run->tile * width;
    case HBTVM_SPAN: shape[0] = 2; return worker->span;
    default: return level->state + (level->row + run->at) * model->width;
  }
}

/* Return how many of a run's `tiles` tiles are called at once, in whole units, and set their `arity`. */
static int64_t tiles_at_a_time(const struct level *level, struct run *run, int64_t tiles, int64_t unit) {
  const struct recursive_batch *batch = level->call->batch;
  int64_t children = level->call->recursive->model->children, step = unit * run->tile, count = 0;
  run->arity = children > 0 ? children : 1;
  if (children >= 0) {
    int64_t most = CHILD_NUMBERS / (step * run->arity);
    count = (most > 0 ? most : 1) * unit;
    return count < tiles ? count : tiles;
  }
  for (int64_t at = run->at; count < tiles; count += unit, at += step) {
    int64_t stop = at + step < level->nodes ? at + step : level->nodes, arity = run->arity;
    for (int64_t i = at; i < stop; ++i) {
      int64_t own = batch->first[level->node[i] + 1] - batch->first[level->node[i]];
      if (own > arity) arity = own;
    }
    if (count && (count + unit) * run->tile > CHILD_NUMBERS / arity) return count;
    run->arity = arity;
  }
  return tiles;
}

static int has_child(const struct recursive_step *step) {
  for (int64_t i = 0; i < step->count; ++i) {
    if (step->arguments[i].role == HBTVM_CHILD) return 1;
  }
  return 0;
}

int hbtvm_step_part(struct recursive_worker *worker, const struct level *level, int64_t tail, int64_t step, int64_t k,
                    int64_t m) {
  const struct recursive_call *call = level->call;
  struct recursive *recursive = call->recursive;
  const struct recursive_kernels *kernels = &recursive->model->kernels[call->kernels];
  const struct recursive_program *program = &kernels->program[level->program];
  const struct recursive_steps *steps = steps_of(program, tail);
  int64_t tiles = tail ? level->tail : level->main, first = 0, stop = tiles;
  if (!tiles || step >= steps->count) return HBTVM_OK;
  const struct recursive_step *own = &steps->step[step];
  int64_t unit = recursive->kernels[call->kernels].steps[level->program][tail].unit[step];
  worker->span[0] = 0;
  worker->span[1] = (int32_t)own->panels;
  if (m > 1 && own->panels && kernels->share == HBTVM_PANELS) {
    worker->span[0] = (int32_t)(own->panels * k / m);
    worker->span[1] = (int32_t)(own->panels * (k + 1) / m);
    if (worker->span[0] == worker->span[1]) return HBTVM_OK;
  } else if (m > 1) {
    int64_t units = tiles_of(tiles, unit);
    /* The last threads get one of a few tiles; those of the tail go to other threads than those of the main steps. */
    if (!tail) k = m - 1 - k;
    first = units * k / m * unit;
    stop = units * (k + 1) / m * unit;
    if (stop > tiles) stop = tiles;
    if (first >= stop) return HBTVM_OK;
  }
  struct step_call *laid = step_call(recursive, worker, call->kernels, level->program, tail, step);
  if (!laid) return HBTVM_NO_MEMORY;
  int64_t before = tail ? level->main * program->main.tile : 0;
  while (first < stop) {
    struct run run = {.at = before + first * steps->tile, .tiles = stop - first, .tile = steps->tile};
    if (has_child(own)) run.tiles = tiles_at_a_time(level, &run, stop - first, unit);
    for (int64_t i = 0; i < own->count; ++i) {
      struct tensor *tensor = &laid->tensors[i];
      if (own->arguments[i].role == HBTVM_TABLE) continue;
      tensor->data = place_of(worker, level, &run, tail, first, &own->arguments[i], tensor->shape);
      if (!tensor->data) return HBTVM_NO_MEMORY;
    }
    int status = call_step(own, laid);
    if (status) return status;
    first += run.tiles;
  }
  return HBTVM_OK;
}

int hbtvm_step_check(struct recursive *recursive, struct recursive_worker *worker, int64_t kernels, int64_t program,
                     int64_t tail, int64_t step) {
  const struct recursive_program *of = &recursive->model->kernels[kernels].program[program];
  const struct recursive_step *own = &steps_of(of, tail)->step[step];
  struct step_call *laid = step_call(recursive, worker, kernels, program, tail, step);
  if (!laid) return HBTVM_NO_MEMORY;
  worker->span[0] = worker->span[1] = 0;
  for (int64_t i = 0; i < own->count; ++i) {
    struct tensor *tensor = &laid->tensors[i];
    int32_t role = own->arguments[i].role;
    if (role == HBTVM_TABLE) continue;
    tensor->shape[0] = role == HBTVM_SPAN ? 2 : 0;
    if (role == HBTVM_CHILD && recursive->model->children < 0) tensor->shape[2] = 1;
    /* Kernels check addresses even for no tiles. */
    tensor->data = worker->span;
  }
  return call_step(own, laid);
}
