/* Calls from Python on numpy arrays: one C function from an array of rows to an array of results.
 *
 * Compiling this needs neither Python nor numpy. The functions that it calls come from the interpreter that loads it,
 * and so do the offsets of an array's fields, which numpy's headers compile into every extension. The loader has
 * checked them against known arrays (`hbtvm.runtime.native.arrays`).
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "executor/clock.h"
#include "executor/executor.h"

/* Longer calls release the interpreter's lock. Getting it back may take 5 ms if another thread is busy, too long for a
 * call of microseconds. */
#define BRIEF_NANOSECONDS 30000

/* Results of this size or larger are aligned, so that kernels write them in place. */
#define LARGE_BYTES (1 << 16)

/* numpy's array flags, and its type number of unsigned bytes. */
enum { C_CONTIGUOUS = 1, ALIGNED = 0x100, WRITEABLE = 0x400, UNSIGNED_BYTES = 2 };

struct python {
  void *(*capsule)(void *, const char *); /* returns the capsule's pointer */
  void (*take)(void *); /* increments a reference count */
  void (*drop)(void *);
  void *(*release)(void); /* the interpreter's lock */
  void (*resume)(void *);
  void *(*new_array)(const void *type, int axes, const intptr_t *shape, int number, const intptr_t *strides,
                     void *data, int item, int flags, void *like);
  int (*set_base)(void *array, void *base);
  void *none;
  const void *array_type;
  /* Offsets of fields, in bytes from the start of their object. */
  int64_t type_at, data_at, axes_at, shape_at, dtype_at, flags_at, number_at, order_at;
};

/* Results for rows of one type; `epilogue` null: raw scores. */
struct results {
  const struct epilogue *epilogue;
  int64_t ready;  /* whether kernels read rows of this type directly */
  int64_t number; /* numpy's number of the results' type */
  int64_t item;   /* bytes of a result */
  int64_t axes;   /* 1 or 2 */
  int64_t columns;
};

/* The description of a Python function's computation. */
struct bound_output {
  struct executor *executor;
  int64_t columns; /* of rows */
  int64_t threads;
  int64_t numbers[2]; /* numpy's type numbers of float32 and float64 */
  struct results results[2]; /* by type of rows */
  _Atomic int64_t nanoseconds[64]; /* duration of calls, by the logarithm of their number of rows */
};

/* Shared by all models of a process, and set before any call. */
static struct python python;

void hbtvm_numpy_begin(const struct python *given) { python = *given; }

#define FIELD(TYPE, object, at) (*(TYPE *)(void *)((char *)(object) + (at)))

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

/* Compute the results of an array of rows. Returns None if it is not an array that kernels read directly, or the call
 * fails: Python then takes the slow path, which reports errors. */
void *hbtvm_numpy_call(void *self, void *rows) {
  const struct python *p = &python;
  struct bound_output *own = p->capsule(self, NULL);
  if (FIELD(const void *, rows, p->type_at) != p->array_type || FIELD(int, rows, p->axes_at) != 2) return nothing(p);
  const intptr_t *shape = FIELD(const intptr_t *, rows, p->shape_at);
  int flags = FIELD(int, rows, p->flags_at);
  if (shape[1] != own->columns || shape[0] < 1 || ~flags & (C_CONTIGUOUS | ALIGNED)) return nothing(p);
  const void *dtype = FIELD(const void *, rows, p->dtype_at);
  int number = FIELD(int, dtype, p->number_at);
  int64_t type = number == own->numbers[HBTVM_F32] ? HBTVM_F32 : HBTVM_F64;
  const struct results *results = &own->results[type];
  if (number != own->numbers[type] || FIELD(char, dtype, p->order_at) != '=' || !results->ready) return nothing(p);
  int64_t n = shape[0];
  const void *data = FIELD(const void *, rows, p->data_at);
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

int64_t hbtvm_version(void) { return HBTVM_EXECUTOR_VERSION; }

/* Sizes of the structures, which the loader checks against its own. */
int64_t hbtvm_size(int64_t which) {
  const size_t sizes[] = {sizeof(struct table),    sizeof(struct kernel), sizeof(struct kernels),
                          sizeof(struct stage),    sizeof(struct model),  sizeof(struct epilogue),
                          sizeof(struct results),  sizeof(struct python), sizeof(struct bound_output)};
  return which < (int64_t)(sizeof sizes / sizeof *sizes) ? (int64_t)sizes[which] : -1;
}
