/* Calls from Python on frames of pandas: one C function from a small frame to an array of results.
 *
 * The columns are read in place from the frame's blocks, which are not part of pandas' public interface, and from
 * Arrow's arrays: in place if their layout is known, else from Arrow's C stream interface, which takes ten times as
 * long when its code is not in the caches. Services call a model after other work, which has displaced its data from the
 * caches: so fields are loaded directly where their places are known, and columns' objects are prefetched side by side.
 * Whatever differs from the expected (attributes, types, values) returns None: Python then reads the frame, and reports
 * errors. As in numpy.c, compiling this needs neither Python nor pandas.
 */
#include <stdlib.h>
#include <string.h>

#include "python/frame.h"

/* numpy's type numbers, and Python's operation. */
enum { BOOLEAN = 0, BYTE = 1, OBJECTS = 17, HALVES = 23, EQUAL = 2 };

static int same_objects(const struct reading_frame *r, const struct layout *l, void *array) {
  if (!l->names || !hbtvm_is_array(r->p, array, 1) || hbtvm_number_of(r->p, array) != OBJECTS) return 0;
  if (FIELD(const intptr_t *, array, r->p->shape_at)[0] != l->width) return 0;
  if (~FIELD(int, array, r->p->flags_at) & (C_CONTIGUOUS | ALIGNED)) return 0;
  void **names = FIELD(void **, array, r->p->data_at);
  for (int64_t i = 0; i < l->width; ++i) {
    int same = r->f->api->same(l->names[i], names[i], EQUAL);
    if (same < 0) r->f->api->clear();
    if (same <= 0) return 0;
  }
  return 1;
}

/* Whether an index has a layout's names. */
static int same_names(struct reading_frame *r, const struct layout *l, void *index) {
  const struct frame_api *api = r->f->api;
  int64_t holds = r->holds;
  int same = 0;
  void *names;
  if (l->range) {
    names = hbtvm_part(r, index, api->range);
    same = names && api->same(l->range, names, EQUAL) == 1;
  } else if (l->names || l->arrow) {
    void *data = hbtvm_part(r, index, api->data);
    if (data && l->names) same = same_objects(r, l, data);
    if (data && l->arrow && (names = hbtvm_part(r, data, api->arrow))) {
      same = hbtvm_same_texts(r, l->arrow, names);
    }
  }
  api->clear();
  while (r->holds > holds) r->p->drop(r->held[--r->holds]);
  return same;
}

static const struct layout *layout_of(struct reading_frame *r, void *index) {
  const struct frame_reader *f = r->f;
  int64_t count = atomic_load_explicit(&f->count, memory_order_acquire);
  void *id = hbtvm_part(r, index, f->api->id);
  for (int64_t i = 0; id && id != r->p->none && i < count; ++i)
    if (f->layouts[i].id == id) return &f->layouts[i];
  for (int64_t i = 0; i < count; ++i)
    if (same_names(r, &f->layouts[i], index)) return &f->layouts[i];
  return NULL;
}

enum column_type hbtvm_type_of_number(int number) {
  /* By numpy's number; long and long long are alike. */
  static const enum column_type types[] = {U8, I8, U8, I16, U16, I32, U32, I64, U64, I64, U64, SINGLE, DOUBLE};
  if (number == HALVES) return HALF;
  return number >= 0 && number < (int)(sizeof types / sizeof *types) ? types[number] : NULLS;
}

static int64_t bytes_of(enum column_type type) {
  if (type == U8 || type == I8) return 1;
  if (type == U16 || type == I16 || type == HALF) return 2;
  return type == U32 || type == I32 || type == SINGLE ? 4 : 8;
}

/* Whether Python's reader of a single row computes in the types of record batches. */
static int reads_row(const struct reading_frame *r, int number) {
  if (r->n > 1 || !r->f->front->feeds) return 1;
  if (number == BOOLEAN || number == BYTE) return r->f->mixed != 0;
  enum column_type type = hbtvm_type_of_number(number);
  return type == I32 || type == I64 || is_float(&(struct column){.type = type});
}

static int open_numbers(struct reading_frame *r, int64_t i, void *array, int64_t place) {
  const intptr_t *shape = FIELD(const intptr_t *, array, r->p->shape_at);
  const intptr_t *strides = hbtvm_strides(array);
  int number = hbtvm_number_of(r->p, array);
  enum column_type type = hbtvm_type_of_number(number);
  if (type == NULLS || !strides || place < 0 || place >= shape[0]) return 0;
  if (!r->n) r->n = shape[1];
  if (shape[1] != r->n || r->n < 1 || r->n > r->f->most || !reads_row(r, number)) return 0;
  if (r->f->front->columns[i].refuses >> (number == BOOLEAN ? 0 : type - BOOLS) & 1) return 0;
  const uint8_t *data = FIELD(const uint8_t *, array, r->p->data_at) + place * strides[0];
  int64_t size = bytes_of(type);
  if (r->n > 1 && strides[1] != size) {
    uint8_t *copy = r->opened[i].copy = malloc((size_t)(r->n * size));
    if (!copy) return 0;
    for (int64_t row = 0; row < r->n; ++row) memcpy(copy + row * size, data + row * strides[1], (size_t)size);
    data = copy;
  }
  r->column[i] = (struct column){.type = type, .n = r->n, .data = data};
  return 1;
}

/* Find the values of the blocks of all columns that are read. The loops fetch the columns' objects side by side. */
static int find_values(struct reading_frame *r, void *blocks) {
  const struct front *front = r->f->front;
  const struct frame_api *api = r->f->api;
  for (int64_t i = 0; i < front->count; ++i) {
    if (front->feeds && !front->columns[i].read) continue;
    int64_t block = r->block_of[r->layout->places[i]];
    if (block < 0 || block >= r->blocks) return 0;
    hbtvm_prefetch_block(api->tuple_item(blocks, (intptr_t)block));
  }
  for (int64_t i = 0; i < front->count; ++i) {
    if (front->feeds && !front->columns[i].read) continue;
    int64_t block = r->block_of[r->layout->places[i]];
    void **values = &r->values[block];
    if (!*values) *values = hbtvm_values(r, api->tuple_item(blocks, (intptr_t)block));
    if (!*values) return 0;
    r->opened[i].values = *values;
    /* An instance of a Python class refers to its attributes from before its start. */
    __builtin_prefetch((const char *)*values - 32);
    __builtin_prefetch((const char *)*values + 32);
  }
  for (int64_t i = 0; i < front->count; ++i) {
    void *values = r->opened[i].values;
    if (!values) continue;
    if (hbtvm_is_array(r->p, values, 2)) {
      __builtin_prefetch(FIELD(const void *, values, r->p->shape_at));
      __builtin_prefetch(FIELD(const void *, values, r->p->data_at));
    } else if (r->f->numeric) {
      return 0;
    } else {
      r->opened[i].chunks = api->get(values, api->arrow);
      if (!r->opened[i].chunks) return 0;
      __builtin_prefetch((const char *)r->opened[i].chunks + 48);
    }
  }
  hbtvm_find_chunks(r);
  return 1;
}

static int open_frame(struct reading_frame *r, void *frame) {
  const struct front *front = r->f->front;
  const struct frame_api *api = r->f->api;
  void *manager = hbtvm_manager_of(r, frame);
  if (!manager) return 0;
  void *axes = hbtvm_axes(r, manager), *blocks = hbtvm_blocks(r, manager);
  void *index = axes && blocks ? api->list_item(axes, 0) : NULL;
  if (!index) return 0;
  r->layout = layout_of(r, index);
  r->blocks = (int64_t)api->tuple_size(blocks);
  if (!r->layout || r->blocks < 1 || !hbtvm_find_places(r, manager, blocks)) return 0;
  size_t count = (size_t)front->count;
  r->column = calloc(1, count * (sizeof *r->column + sizeof *r->opened) + (size_t)r->blocks * sizeof *r->values);
  if (!r->column) return 0;
  r->opened = (struct opened *)(void *)(r->column + count);
  r->values = (void **)(void *)(r->opened + count);
  if (!find_values(r, blocks)) return 0;
  for (int64_t i = 0; i < front->count; ++i) {
    const struct opened *o = &r->opened[i];
    if (!o->values) continue;
    if (o->chunks ? !hbtvm_open_texts(r, i) : !open_numbers(r, i, o->values, r->place_of[r->layout->places[i]])) return 0;
  }
  return r->n > 0;
}

static void close_frame(struct reading_frame *r) {
  for (int64_t i = 0; r->opened && i < r->f->front->count; ++i) {
    struct opened *opened = &r->opened[i];
    if (opened->array.release) opened->array.release(&opened->array);
    if (opened->chunks) r->p->drop(opened->chunks);
    free(opened->copy);
  }
  for (int64_t i = 0; r->values && i < r->blocks; ++i)
    if (r->values[i]) r->p->drop(r->values[i]);
  while (r->holds) r->p->drop(r->held[--r->holds]);
  free(r->column);
  free(r->computed);
  r->f->api->clear();
}

/* Read a frame into a matrix, which is to be freed; null if it is to be read by Python. */
static void *matrix_of(const struct frame_reader *f, void *frame, int64_t *type, int64_t *n) {
  struct reading_frame r = {.p = hbtvm_python(), .f = f};
  void *matrix = NULL;
  if (open_frame(&r, frame)) {
    struct arrow_place place;
    struct reading rows = {f->front, &place, r.n, r.column, NULL, 0};
    if ((f->front->feeds ? read_feeds : read_bare)(&rows, type, &matrix)) {
      free(matrix);
      matrix = NULL;
    }
    *n = r.n;
  }
  close_frame(&r);
  return matrix;
}

/* Compute the results of a frame, dicts, or an array. Returns None if Python has to read it. */
void *hbtvm_frame_call(void *self, void *rows) {
  const struct python *p = hbtvm_python();
  struct bound_frames *own = p->capsule(self, NULL);
  struct frame_reader *f = own->reader;
  int is_frame = FIELD(const void *, rows, p->type_at) == f->api->frame_type;
  if (!is_frame && !hbtvm_are_dicts(f, rows)) return hbtvm_numpy_array(own->output, rows);
  int64_t type = HBTVM_F64, n = 0;
  void *matrix = (is_frame ? matrix_of : hbtvm_dict_matrix)(f, rows, &type, &n);
  if (!matrix) {
    p->take(p->none);
    return p->none;
  }
  ++f->read;
  void *results = hbtvm_results(own->output, type, matrix, n);
  free(matrix);
  return results;
}

/* Fronts of texts that are cut into terms are not bound. */
int read_texts(struct reading *r, const struct texts *t, double *out) {
  (void)r, (void)t, (void)out;
  return HBTVM_BAD_ARGUMENT;
}
