/* Calls from Python on frames of pandas: one C function from a small frame to an array of results.
 *
 * The columns are read in place from the frame's blocks, which are not part of pandas' public interface, and from
 * Arrow's arrays: in place if their layout is known, else from Arrow's C stream interface, which takes ten times as
 * long when its code is not in the caches. Whatever differs from the expected (attributes, types, values) returns None:
 * Python then reads the frame, and reports errors. As in numpy.c, compiling this needs neither Python nor pandas.
 */
#include <stdlib.h>
#include <string.h>

#include "arrow/internal.h"
#include "python/python.h"

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};

/* Functions and objects of Python besides `struct python`. */
struct frame_api {
  void *(*get)(void *object, void *name);         /* PyObject_GetAttr */
  void *(*call)(void *object, void *name, ...);   /* PyObject_CallMethodObjArgs */
  void *(*list_item)(void *list, intptr_t at);    /* borrowed */
  void *(*tuple_item)(void *tuple, intptr_t at);  /* borrowed */
  intptr_t (*tuple_size)(void *tuple);
  int (*same)(void *one, void *other, int operation); /* PyObject_RichCompareBool */
  void (*clear)(void);                                /* PyErr_Clear */
  void *yes;                                          /* True */
  void *frame_type;
  /* Strings. */
  void *manager, *axes, *blocks, *numbers, *places, *values, *id, *data, *arrow, *range, *stream, *equals;
  /* pyarrow.ChunkedArray, and the C++ types of its texts; null if the layout of its arrays is unknown. */
  const void *chunked_type, *text_type, *large_type;
};

/* Columns of frames that Python has matched with the model's. */
struct layout {
  void *id; /* of the columns' index, shared by its views */
  /* The index's names: as Python objects, as pyarrow.ChunkedArray, or as a range; null for the others. */
  void **names;
  void *arrow, *range;
  int64_t width;         /* of the frame */
  const int64_t *places; /* of the model's columns in the frame */
};

#define LAYOUTS 4

struct frame_reader {
  const struct frame_api *api;
  const struct front *front;
  int64_t most;    /* rows */
  int64_t numeric; /* whether all columns that are read must be numbers */
  int64_t mixed;   /* whether the matrix has columns besides unchanged numbers */
  struct layout layouts[LAYOUTS];
  _Atomic int64_t count; /* of layouts; they are added and never changed */
  int64_t read;          /* frames, counted under the interpreter's lock */
};

/* The description of a Python function's computation. */
struct bound_frames {
  struct bound_output *output;
  struct frame_reader *reader;
};

#define HELD 8

/* Memory of a column until the matrix is filled. */
struct opened {
  void *copy; /* of values that do not lie side by side; else null */
  struct ArrowArray array;
};

/* A frame in progress. */
struct reading_frame {
  const struct python *p;
  const struct frame_reader *f;
  const struct layout *layout;
  int64_t n, blocks;
  void *held[HELD]; /* references */
  int64_t holds;
  struct column *column; /* by the model's column */
  struct opened *opened; /* by the model's column */
  void **values;         /* by block: its array, held; null until it is read */
};

/* An attribute, held until the end; null if there is none. */
static void *part_of(struct reading_frame *r, void *object, void *name) {
  void *part = object ? r->f->api->get(object, name) : NULL;
  if (!part) r->f->api->clear();
  if (part) r->held[r->holds++] = part;
  return part;
}

static int is_array(const struct reading_frame *r, void *object, int axes) {
  const void *type = FIELD(const void *, object, r->p->type_at);
  return type == r->p->array_type && FIELD(int, object, r->p->axes_at) == axes;
}

static int number_of(const struct reading_frame *r, void *array) {
  const void *dtype = FIELD(const void *, array, r->p->dtype_at);
  char order = FIELD(char, dtype, r->p->order_at);
  return order == '=' || order == '|' ? FIELD(int, dtype, r->p->number_at) : -1;
}

/* numpy's type numbers, and Python's operation. */
enum { BOOLEAN = 0, BYTE = 1, OBJECTS = 17, HALVES = 23, EQUAL = 2 };

static int same_objects(const struct reading_frame *r, const struct layout *l, void *array) {
  if (!l->names || !is_array(r, array, 1) || number_of(r, array) != OBJECTS) return 0;
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
    names = part_of(r, index, api->range);
    same = names && api->same(l->range, names, EQUAL) == 1;
  } else if (l->names || l->arrow) {
    void *data = part_of(r, index, api->data);
    if (data && l->names) same = same_objects(r, l, data);
    if (data && l->arrow && (names = part_of(r, data, api->arrow))) {
      void *result = api->call(l->arrow, api->equals, names, NULL);
      same = result == api->yes;
      if (result) r->p->drop(result);
    }
  }
  api->clear();
  while (r->holds > holds) r->p->drop(r->held[--r->holds]);
  return same;
}

static const struct layout *layout_of(struct reading_frame *r, void *index) {
  const struct frame_reader *f = r->f;
  int64_t count = atomic_load_explicit(&f->count, memory_order_acquire);
  void *id = part_of(r, index, f->api->id);
  for (int64_t i = 0; id && id != r->p->none && i < count; ++i)
    if (f->layouts[i].id == id) return &f->layouts[i];
  for (int64_t i = 0; i < count; ++i)
    if (same_names(r, &f->layouts[i], index)) return &f->layouts[i];
  return NULL;
}

static enum column_type numbers_of(int number) {
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
  enum column_type type = numbers_of(number);
  return type == I32 || type == I64 || is_float(&(struct column){.type = type});
}

static int open_numbers(struct reading_frame *r, int64_t i, void *array, int64_t place) {
  const intptr_t *shape = FIELD(const intptr_t *, array, r->p->shape_at);
  const intptr_t *strides = hbtvm_strides(array);
  int number = number_of(r, array);
  enum column_type type = numbers_of(number);
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

static int open_stream(struct reading_frame *r, int64_t i, struct ArrowArrayStream *stream) {
  struct ArrowArray *array = &r->opened[i].array;
  struct ArrowSchema schema = {0};
  if (stream->get_schema(stream, &schema)) return 0;
  const char *format = schema.format;
  int opened = !strcmp(format, "U") || !strcmp(format, "u") || !strcmp(format, "vu");
  opened = opened && !stream->get_next(stream, array) && array->release;
  if (opened && !r->n) r->n = array->length;
  if (opened && array->length == r->n && r->n > 0 && r->n <= r->f->most) {
    struct ArrowArray batch = {.length = r->n};
    opened = open_column(&schema, array, &batch, &r->column[i]) == HBTVM_OK;
  } else {
    opened = 0;
  }
  schema.release(&schema);
  return opened;
}

static void keep(struct ArrowArray *array) { (void)array; }

static void keep_schema(struct ArrowSchema *schema) { (void)schema; }

/* Older hbtvm calls with a `frame_api` that ends before `chunked_type`. */
static int has_chunks;

void hbtvm_frame_chunks(void) { has_chunks = 1; }

/* Texts in a pyarrow.ChunkedArray of one chunk, whose fields the loader has checked (see
 * `hbtvm.runtime.native.chunks`). Returns 0 if they are to be read from a stream. */
static int open_chunk(struct reading_frame *r, int64_t i, void *chunks) {
  const struct frame_api *api = r->f->api;
  if (!has_chunks || !api->chunked_type || FIELD(const void *, chunks, r->p->type_at) != api->chunked_type) return 0;
  void **chunked = ((void **)chunks)[6];
  void **first = chunked[0], **end = chunked[1];
  if (end - first != 2) return 0;
  void **array = first[0], **data = array[1];
  int large = data[0] == api->large_type;
  int64_t length = (int64_t)(intptr_t)data[2], offset = (int64_t)(intptr_t)data[4];
  if ((!large && data[0] != api->text_type) || !array[4]) return 0;
  if (!r->n) r->n = length;
  if (length != r->n || r->n < 1 || r->n > r->f->most) return 0;
  /* The first text's place in the buffer of offsets. */
  const void *buffers[3] = {array[3], (const char *)array[4] - offset * (large ? 8 : 4), array[5]};
  struct ArrowArray opened = {.length = length, .null_count = -1, .offset = offset, .n_buffers = 3};
  opened.buffers = buffers;
  opened.release = keep;
  struct ArrowSchema schema = {.format = large ? "U" : "u", .release = keep_schema};
  struct ArrowArray batch = {.length = length};
  return open_column(&schema, &opened, &batch, &r->column[i]) == HBTVM_OK;
}

static int open_texts(struct reading_frame *r, int64_t i, void *values) {
  const struct frame_api *api = r->f->api;
  void *chunks = api->get(values, api->arrow);
  if (chunks && open_chunk(r, i, chunks)) {
    r->p->drop(chunks); /* `values` refers to it */
    return 1;
  }
  void *capsule = chunks ? api->call(chunks, api->stream, NULL) : NULL;
  struct ArrowArrayStream *stream = capsule ? r->p->capsule(capsule, "arrow_array_stream") : NULL;
  int opened = stream && open_stream(r, i, stream);
  if (!stream) api->clear();
  if (capsule) r->p->drop(capsule);
  if (chunks) r->p->drop(chunks);
  return opened;
}

/* Integers that pandas keeps for each column of a frame; null if they have another form. */
static const int64_t *by_column(const struct reading_frame *r, void *array) {
  if (!is_array(r, array, 1) || numbers_of(number_of(r, array)) != I64) return NULL;
  if (FIELD(const intptr_t *, array, r->p->shape_at)[0] != r->layout->width) return NULL;
  if (~FIELD(int, array, r->p->flags_at) & (C_CONTIGUOUS | ALIGNED)) return NULL;
  return FIELD(const int64_t *, array, r->p->data_at);
}

static int open_frame(struct reading_frame *r, void *frame) {
  const struct front *front = r->f->front;
  const struct frame_api *api = r->f->api;
  void *manager = part_of(r, frame, api->manager);
  void *axes = part_of(r, manager, api->axes), *blocks = part_of(r, manager, api->blocks);
  void *numbers = part_of(r, manager, api->numbers), *places = part_of(r, manager, api->places);
  void *index = axes && blocks && numbers && places ? api->list_item(axes, 0) : NULL;
  if (!index) return 0;
  r->layout = layout_of(r, index);
  if (!r->layout) return 0;
  const int64_t *block_of = by_column(r, numbers), *place_of = by_column(r, places);
  r->blocks = (int64_t)api->tuple_size(blocks);
  if (!block_of || !place_of || r->blocks < 1) return 0;
  r->column = calloc((size_t)front->count, sizeof *r->column);
  r->opened = calloc((size_t)front->count, sizeof *r->opened);
  r->values = calloc((size_t)r->blocks, sizeof *r->values);
  if (!r->column || !r->opened || !r->values) return 0;
  for (int64_t i = 0; i < front->count; ++i) {
    if (front->feeds && !front->columns[i].read) continue;
    int64_t at = r->layout->places[i], block = block_of[at];
    if (block < 0 || block >= r->blocks) return 0;
    void *values = r->values[block];
    if (!values) values = r->values[block] = api->get(api->tuple_item(blocks, (intptr_t)block), api->values);
    if (!values) return 0;
    if (is_array(r, values, 2) ? !open_numbers(r, i, values, place_of[at])
                               : r->f->numeric || !open_texts(r, i, values))
      return 0;
  }
  return r->n > 0;
}

static void close_frame(struct reading_frame *r) {
  for (int64_t i = 0; r->opened && i < r->f->front->count; ++i) {
    struct ArrowArray *array = &r->opened[i].array;
    if (array->release) array->release(array);
    free(r->opened[i].copy);
  }
  for (int64_t i = 0; r->values && i < r->blocks; ++i)
    if (r->values[i]) r->p->drop(r->values[i]);
  while (r->holds) r->p->drop(r->held[--r->holds]);
  free(r->column);
  free(r->opened);
  free(r->values);
  r->f->api->clear();
}

/* Read a frame into a matrix, which is to be freed; null if it is to be read by Python. */
static void *matrix_of(struct frame_reader *f, void *frame, int64_t *type, int64_t *n) {
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
    f->read += matrix != NULL;
  }
  close_frame(&r);
  return matrix;
}

/* Compute the results of a frame or an array. Returns None if Python has to read it. */
void *hbtvm_frame_call(void *self, void *rows) {
  const struct python *p = hbtvm_python();
  struct bound_frames *own = p->capsule(self, NULL);
  if (FIELD(const void *, rows, p->type_at) != own->reader->api->frame_type)
    return hbtvm_numpy_array(own->output, rows);
  int64_t type = HBTVM_F64, n = 0;
  void *matrix = matrix_of(own->reader, rows, &type, &n);
  if (!matrix) {
    p->take(p->none);
    return p->none;
  }
  void *results = hbtvm_results(own->output, type, matrix, n);
  free(matrix);
  return results;
}

/* Fronts of texts that are cut into terms are not bound. */
int read_texts(struct reading *r, const struct texts *t, double *out) {
  (void)r, (void)t, (void)out;
  return HBTVM_BAD_ARGUMENT;
}
