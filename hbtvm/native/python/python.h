/* Declarations shared by the functions that Python calls. */
#ifndef HBTVM_PYTHON_H
#define HBTVM_PYTHON_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "executor/executor.h"

/* numpy's array flags. */
enum { C_CONTIGUOUS = 1, ALIGNED = 0x100, WRITEABLE = 0x400 };

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

/* A field of an object. */
#define FIELD(TYPE, object, at) (*(TYPE *)(void *)((char *)(object) + (at)))

/* Whether an object is an array of so many axes. */
static inline int hbtvm_is_array(const struct python *p, void *object, int axes) {
  return FIELD(const void *, object, p->type_at) == p->array_type && FIELD(int, object, p->axes_at) == axes;
}

/* numpy's number of an array's type; -1 for another order of bytes. */
static inline int hbtvm_number_of(const struct python *p, void *array) {
  const void *dtype = FIELD(const void *, array, p->dtype_at);
  char order = FIELD(char, dtype, p->order_at);
  return order == '=' || order == '|' ? FIELD(int, dtype, p->number_at) : -1;
}

/* The functions of this process's interpreter. */
const struct python *hbtvm_python(void);

/* The strides of an array; null if their place in it is unknown. */
const intptr_t *hbtvm_strides(void *array);

/* Compute the results of rows: an array, or None if the call fails; null with an error if Python has no memory.
 * type: HBTVM_F32 or HBTVM_F64. */
void *hbtvm_results(struct bound_output *own, int64_t type, const void *data, int64_t n);

void *hbtvm_numpy_call(void *self, void *rows);
void *hbtvm_numpy_array(struct bound_output *own, void *rows);

#endif
