/* Calls from Python on numpy arrays: one C function from an array of rows to an array of results.
 *
 * Compiling this needs neither Python nor numpy. The functions that it calls come from the interpreter that loads it,
 * and so do the offsets of an array's fields, which numpy's headers compile into every extension. The loader has
 * checked them against known arrays (`hbtvm.runtime.native.arrays`).
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "executor/clock.h"
#include "python/python.h"

/* Longer calls release the interpreter's lock. Getting it back may take 5 ms if another thread is busy, too long for a
 * call of microseconds. */
#define BRIEF_NANOSECONDS 30000

/* Results of this size or larger are aligned, so that kernels write them in place. */
#define LARGE_BYTES (1 << 16)

/* Numbers of rows in another order than C's that are copied here; numpy copies more by blocks. */
#define MOST_COPIED 8192

/* numpy's type number. */
enum { UNSIGNED_BYTES = 2 };

/* Shared by all models of a process, and set before any call. */
static struct python python;

void hbtvm_numpy_begin(const struct python *given) { python = *given; }

const struct python *hbtvm_python(void) { return &python; }

/* The offset of an array's strides; 0: unknown. */
static int64_t strides_at;

void hbtvm_numpy_strides(int64_t at) { strides_at = at; }

const intptr_t *hbtvm_strides(void *array) { return strides_at ? FIELD(const intptr_t *, array, strides_at) : NULL; }

static int size_of(uint64_t n) { return 63 - __builtin_clzll(n | 1); }

static void *array_of(const struct python *p, const struct results *results, int64_t n) {
  intptr_t shape[2] = {(intptr_t)n, (intptr_t)results->columns};
  int64_t bytes = n * results->columns * results->item;
  const void *type = p->array_type;
  int axes = (int)results->axes, number = (int)results->number, item = (int)results->item;
  if (bytes < LARGE_BYTES) return p->new_array(type, axes, shape, number, NULL, NULL, item, 0, NULL);
  intptr_t room = (intptr_t)(bytes + HBTVM_ALIGNMENT);
  void *base = p->new_array(type, 1, &room, UNSIGNED_BYTES, NULL, NULL, 1, 0, NULL);
  if (!base) return NULL;
  char *data = FIELD(char *, base, p->data_at);
  data += (HBTVM_ALIGNMENT - (uintptr_t)data % HBTVM_ALIGNMENT) % HBTVM_ALIGNMENT;
  int flags = C_CONTIGUOUS | ALIGNED | WRITEABLE;
  void *array = p->new_array(type, axes, shape, number, NULL, data, item, flags, NULL);
  if (!array) {
    p->drop(base);
    return NULL;
  }
  if (!p->set_base(array, base)) return array; /* steals the reference in any case */
  p->drop(array);
  return NULL;
}

static void *nothing(const struct python *p) {
  p->take(p->none);
  return p->none;
}

void *hbtvm_results(struct bound_output *own, int64_t type, const void *data, int64_t n) {
  const struct python *p = &python;
  const struct results *results = &own->results[type];
  void *array = array_of(p, results, n);
  if (!array) return NULL;
  void *out = FIELD(void *, array, p->data_at);
  _Atomic int64_t *expected = &own->nanoseconds[size_of((uint64_t)n)];
  int64_t known = atomic_load_explicit(expected, memory_order_relaxed);
  int status;
  if (known && known < BRIEF_NANOSECONDS) {
    status = hbtvm_run(own->executor, results->epilogue, type, data, n, out, own->threads, NULL);
  } else {
    void *state = p->release();
    int64_t since = nanoseconds_now();
    status = hbtvm_run(own->executor, results->epilogue, type, data, n, out, own->threads, NULL);
    atomic_store_explicit(expected, nanoseconds_now() - since + 1, memory_order_relaxed);
    p->resume(state);
  }
  if (!status) return array;
  p->drop(array);
  return nothing(p);
}

/* Compute the results of few rows that do not lie in C order. */
static void *results_of_copy(struct bound_output *own, int64_t type, void *rows, const intptr_t *strides, int64_t n) {
  size_t item = type == HBTVM_F32 ? sizeof(float) : sizeof(double);
  int64_t columns = own->columns;
  char *copy = malloc((size_t)(n * columns) * item);
  if (!copy) return nothing(&python);
  const char *data = FIELD(const char *, rows, python.data_at);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < columns; ++j)
      memcpy(copy + (size_t)(i * columns + j) * item, data + i * strides[0] + j * strides[1], item);
  void *results = hbtvm_results(own, type, copy, n);
  free(copy);
  return results;
}

/* Compute the results of an array of rows. Returns None if it is not an array that kernels read directly, or the call
 * fails: Python then takes the slow path, which reports errors. */
void *hbtvm_numpy_array(struct bound_output *own, void *rows) {
  const struct python *p = &python;
  if (FIELD(const void *, rows, p->type_at) != p->array_type || FIELD(int, rows, p->axes_at) != 2) return nothing(p);
  const intptr_t *shape = FIELD(const intptr_t *, rows, p->shape_at);
  int flags = FIELD(int, rows, p->flags_at);
  if (shape[1] != own->columns || shape[0] < 1) return nothing(p);
  const void *dtype = FIELD(const void *, rows, p->dtype_at);
  int number = FIELD(int, dtype, p->number_at);
  int64_t type = number == own->numbers[HBTVM_F32] ? HBTVM_F32 : HBTVM_F64;
  if (number != own->numbers[type] || FIELD(char, dtype, p->order_at) != '=' || !own->results[type].ready)
    return nothing(p);
  if (!(~flags & (C_CONTIGUOUS | ALIGNED)))
    return hbtvm_results(own, type, FIELD(const void *, rows, p->data_at), shape[0]);
  const intptr_t *strides = hbtvm_strides(rows);
  if (!strides || shape[0] * shape[1] > MOST_COPIED) return nothing(p);
  return results_of_copy(own, type, rows, strides, shape[0]);
}

void *hbtvm_numpy_call(void *self, void *rows) { return hbtvm_numpy_array(python.capsule(self, NULL), rows); }

int64_t hbtvm_version(void) { return HBTVM_EXECUTOR_VERSION; }

/* Sizes of the structures, which the loader checks against its own. */
int64_t hbtvm_size(int64_t which) {
  const size_t sizes[] = {sizeof(struct table),    sizeof(struct kernel), sizeof(struct kernels),
                          sizeof(struct stage),    sizeof(struct model),  sizeof(struct epilogue),
                          sizeof(struct results),  sizeof(struct python), sizeof(struct bound_output)};
  return which < (int64_t)(sizeof sizes / sizeof *sizes) ? (int64_t)sizes[which] : -1;
}
