/* Frames of pandas that C reads, and the parts of a frame in progress. */
#ifndef HBTVM_FRAME_H
#define HBTVM_FRAME_H

#include <stdatomic.h>

#include "arrow/internal.h"
#include "python/python.h"

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
  int64_t read;          /* frames and dicts, counted under the interpreter's lock */
  /* Rows that are dicts: their columns, in which a missing value is None, and keys; null: Python reads them. */
  const struct front *records;
  void *const *names;
};

/* Functions and types of Python for dicts. */
struct dict_api {
  void *(*item)(void *dict, void *key); /* PyDict_GetItemWithError: borrowed */
  intptr_t (*size)(void *list);
  double (*number)(void *object);
  long long (*integer)(void *object, int *overflow);
  const char *(*text)(void *object, intptr_t *size); /* PyUnicode_AsUTF8AndSize */
  const void *dict_type, *list_type, *float_type, *integer_type, *bool_type, *text_type;
};

/* The description of a Python function's computation. */
struct bound_frames {
  struct bound_output *output;
  struct frame_reader *reader;
};

/* Places of fields in pandas' objects, in bytes, which the loader has checked (see `hbtvm.runtime.native.blocks`), and
 * how to get a frame's attributes: its class also looks for columns of their names. */
struct frame_places {
  void *(*get)(void *object, void *name); /* PyObject_GenericGetAttr; null if that is not the class's way */
  const void *manager_type, *block_types[2]; /* null: unknown */
  int64_t axes, blocks, numbers, places, values;
};

/* Likewise of a block's placement, which says which of a frame's columns the block holds: its place in the block, and
 * those of a slice and an array in it, of which one may be None. */
struct placement_places {
  const void *type, *slice_type; /* null: unknown */
  int (*unpack)(void *slice, intptr_t *start, intptr_t *stop, intptr_t *step); /* PySlice_Unpack */
  int64_t at, slice, array;
};

#define HELD 8

/* Memory of a column until the matrix is filled. */
struct opened {
  void *values; /* its block's, held by the reading */
  void *chunks; /* of texts: held */
  void **at;    /* of texts: C++'s object, or null */
  void *copy;   /* of values that do not lie side by side; else null */
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
  const int64_t *block_of, *place_of; /* by the frame's column */
  int64_t *computed;     /* memory of both if pandas has not computed them; else null */
};

/* An attribute, held until the end; null if there is none. */
void *hbtvm_part(struct reading_frame *r, void *object, void *name);

/* A frame's manager, and its axes and blocks, held until the end; null if there are none. */
void *hbtvm_manager_of(struct reading_frame *r, void *frame);
void *hbtvm_axes(struct reading_frame *r, void *manager);
void *hbtvm_blocks(struct reading_frame *r, void *manager);

/* Find the block of each of the layout's columns, and its place there. Returns 0 if C does not find them. */
int hbtvm_find_places(struct reading_frame *r, void *manager, void *blocks);

void hbtvm_prefetch_block(const void *block);

/* A block's array: a new reference; null if there is none. */
void *hbtvm_values(const struct reading_frame *r, void *block);

/* The type of numpy's number; NULLS if C does not read it. */
enum column_type hbtvm_type_of_number(int number);

/* Whether two pyarrow.ChunkedArray of names are equal. */
int hbtvm_same_texts(const struct reading_frame *r, void *one, void *other);

/* Go to the arrays of all texts side by side, and prefetch what they refer to. */
void hbtvm_find_chunks(const struct reading_frame *r);

/* Open a column of texts, whose `chunks` are set. Returns 0 if C does not read them. */
int hbtvm_open_texts(struct reading_frame *r, int64_t i);

/* Whether rows are a dict or a list, of a model whose dicts C reads. */
int hbtvm_are_dicts(const struct frame_reader *f, const void *rows);

/* Read a dict, or a list of dicts, into a matrix, which is to be freed; null if it is to be read by Python. */
void *hbtvm_dict_matrix(const struct frame_reader *f, void *rows, int64_t *type, int64_t *n);

#endif
