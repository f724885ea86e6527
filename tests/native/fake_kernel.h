/* Kernels that compute something simple, and compare their arguments with what they have to be.
 *
 * Output o of a row x is (o + 1) * factor * sum of x[c] * weight[t][c] over all tiles of trees t and columns c. Values
 * and weights are small whole numbers, so that sums are exact in any order.
 */
#ifndef FAKE_KERNEL_H
#define FAKE_KERNEL_H

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "executor/kernel.h"

enum { TREE_TILES = 5, MOST_COLUMNS = 3, MARK = 7 };

/* A kernel's own description; `meets`: wait in calls on rows until so many threads are in one. */
struct fake {
  struct kernel kernel;
  struct table tables[2];
  int64_t row_type, columns;
  double factor;
  int fails, meets;
  int64_t weight_shape[2], mark_shape[1];
  int32_t marks[2];
  _Alignas(64) double weights[TREE_TILES * MOST_COLUMNS];
  _Atomic int64_t inside, calls, most_rows;
  _Atomic int met;
};

#define EXPECT(good)                                                        \
  do {                                                                      \
    if (!(good)) {                                                          \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #good);    \
      exit(1);                                                              \
    }                                                                       \
  } while (0)

static inline double value_at(int64_t type, const void *values, int64_t i) {
  return type == HBTVM_F32 ? (double)((const float *)values)[i] : ((const double *)values)[i];
}

static inline const struct tensor *tensor_at(const struct value *values, int64_t i, int axes, int code, int bits) {
  EXPECT(values[i].type == 7);
  const struct tensor *tensor = values[i].is.pointer;
  EXPECT(tensor->device.type == 1 && tensor->device.id == 0 && tensor->axes == axes);
  EXPECT(tensor->dtype.code == code && tensor->dtype.bits == bits && tensor->dtype.lanes == 1);
  EXPECT(!tensor->strides && !tensor->byte_offset && tensor->data);
  return tensor;
}

/* So many threads in calls at once, or half a minute. */
static inline void meet(struct fake *fake) {
  atomic_fetch_add(&fake->inside, 1);
  time_t until = time(NULL) + 30;
  while (!atomic_load(&fake->met) && time(NULL) < until) {
    if (atomic_load(&fake->inside) >= fake->meets) atomic_store(&fake->met, 1);
    sched_yield();
  }
  atomic_fetch_sub(&fake->inside, 1);
}

static inline int fake_function(void *self, const void *args, int32_t count, void *result) {
  struct fake *fake = self;
  const struct kernel *kernel = &fake->kernel;
  const struct value *values = args;
  int64_t R = kernel->row_tile, outputs = kernel->groups * kernel->width;
  EXPECT(count == 4 && result);
  const struct tensor *rows = tensor_at(values, 0, 3, 2, fake->row_type == HBTVM_F32 ? 32 : 64);
  const struct tensor *weights = tensor_at(values, 1, 2, 2, 64), *marks = tensor_at(values, 2, 1, 0, 32);
  const struct tensor *scores = tensor_at(values, 3, kernel->by_row ? 3 : 4, 2, kernel->type == HBTVM_F32 ? 32 : 64);
  int64_t tiles = rows->shape[0];
  EXPECT(rows->shape[1] == R && rows->shape[2] == fake->columns);
  EXPECT(weights->shape[0] >= 1 && weights->shape[0] <= TREE_TILES && weights->shape[1] == fake->columns);
  EXPECT(marks->shape[0] == 2 && ((const int32_t *)marks->data)[0] == MARK);
  EXPECT(scores->shape[0] == tiles);
  EXPECT(scores->shape[1] == (kernel->by_row ? R : kernel->groups) && scores->shape[2] == kernel->width);
  EXPECT(kernel->by_row || scores->shape[3] == R);
  EXPECT(is_aligned(scores->data) && (uintptr_t)rows->data % (uintptr_t)item_bytes(fake->row_type) == 0);
  if (fake->fails) return -1;
  if (!tiles) return 0;
  atomic_fetch_add(&fake->calls, 1);
  if (tiles * R > atomic_load(&fake->most_rows)) atomic_store(&fake->most_rows, tiles * R);
  if (fake->meets) meet(fake);
  for (int64_t r = 0; r < tiles * R; ++r) {
    double sum = 0;
    const double *weight = weights->data;
    for (int64_t t = 0; t < weights->shape[0]; ++t) {
      for (int64_t c = 0; c < fake->columns; ++c) {
        sum += value_at(fake->row_type, rows->data, r * fake->columns + c) * *weight++;
      }
    }
    for (int64_t o = 0; o < outputs; ++o) {
      double score = (double)(o + 1) * fake->factor * sum;
      int64_t at = kernel->by_row ? r * outputs + o : (r / R * outputs + o) * R + r % R;
      if (kernel->type == HBTVM_F32) {
        ((float *)scores->data)[at] = (float)score;
      } else {
        ((double *)scores->data)[at] = score;
      }
    }
  }
  return 0;
}

/* A kernel for rows of a type, which may change what it is told here before a model is opened. */
static inline struct fake *fake_of(int64_t row_type, int64_t columns, int64_t row_tile, int64_t outputs) {
  struct fake *fake = aligned_alloc(64, (sizeof *fake + 63) / 64 * 64);
  EXPECT(fake);
  memset(fake, 0, sizeof *fake);
  fake->row_type = row_type;
  fake->columns = columns;
  fake->factor = 1;
  fake->weight_shape[0] = TREE_TILES;
  fake->weight_shape[1] = columns;
  fake->mark_shape[0] = 2;
  fake->marks[0] = MARK;
  for (int64_t i = 0; i < TREE_TILES * columns; ++i) fake->weights[i] = (double)(i * 5 % 7 - 1);
  fake->tables[0] = (struct table){fake->weights, fake->weight_shape, 2, 2, 64, 1};
  fake->tables[1] = (struct table){fake->marks, fake->mark_shape, 1, 0, 32, 0};
  fake->kernel = (struct kernel){
      .function = fake_function, .self = fake, .tables = fake->tables, .count = 2, .rows = 1000, .seconds = -1,
      .threads = 1, .row_tile = row_tile, .groups = 1, .width = outputs, .by_row = 1, .type = HBTVM_F64,
      .takes_missing = 1};
  return fake;
}

/* Output o of a row. */
static inline double fake_score(const struct fake *fake, const double *x, int64_t o) {
  double sum = 0;
  for (int64_t i = 0; i < TREE_TILES * fake->columns; ++i) sum += x[i % fake->columns] * fake->weights[i];
  return (double)(o + 1) * fake->factor * sum;
}

#endif
