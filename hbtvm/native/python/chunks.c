/* Texts of frames: in pyarrow's arrays, in place if their layout is known, else from Arrow's C stream interface. */
#include <string.h>

#include "python/frame.h"

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};

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

/* `at` becomes null for texts that are not in a pyarrow.ChunkedArray of one chunk, whose fields the loader has checked
 * (see `hbtvm.runtime.native.chunks`). */
void hbtvm_find_chunks(const struct reading_frame *r) {
  const struct frame_api *api = r->f->api;
  struct opened *stop = r->opened + r->f->front->count;
  if (!has_chunks || !api->chunked_type) return;
  for (struct opened *o = r->opened; o < stop; ++o) {
    if (!o->chunks || FIELD(const void *, o->chunks, r->p->type_at) != api->chunked_type) continue;
    o->at = ((void **)o->chunks)[6];
    __builtin_prefetch(o->at);
  }
  for (struct opened *o = r->opened; o < stop; ++o) {
    if (!o->at) continue;
    void **first = o->at[0], **end = o->at[1];
    o->at = end - first == 2 ? first : NULL;
    __builtin_prefetch(first);
  }
  for (struct opened *o = r->opened; o < stop; ++o) {
    if (!o->at) continue;
    o->at = o->at[0];
    __builtin_prefetch(o->at);
    __builtin_prefetch(o->at + 5);
  }
  for (struct opened *o = r->opened; o < stop; ++o) {
    if (!o->at) continue;
    void **data = o->at[1];
    __builtin_prefetch(data);
    __builtin_prefetch(data + 4);
    for (int i = 3; i < 6; ++i) __builtin_prefetch(o->at[i]);
  }
}

/* The array of a pyarrow.ChunkedArray of one chunk without missing values; null for others. */
static void **whole_array(const struct reading_frame *r, void *chunks) {
  const struct frame_api *api = r->f->api;
  if (!has_chunks || !api->chunked_type || FIELD(const void *, chunks, r->p->type_at) != api->chunked_type) return NULL;
  void **at = ((void **)chunks)[6], **first = at[0], **end = at[1];
  void **array = end - first == 2 ? first[0] : NULL;
  return array && !array[3] && array[4] ? array : NULL;
}

int hbtvm_same_texts(const struct reading_frame *r, void *one, void *other) {
  const struct frame_api *api = r->f->api;
  void **a = whole_array(r, one), **b = whole_array(r, other);
  if (!a || !b || ((void **)a[1])[0] != api->large_type || ((void **)b[1])[0] != api->large_type) {
    void *result = api->call(one, api->equals, other, NULL);
    int same = result == api->yes;
    if (result) r->p->drop(result);
    return same;
  }
  int64_t n = (int64_t)(intptr_t)((void **)a[1])[2];
  const int64_t *starts = a[4], *others = b[4];
  if (n != (int64_t)(intptr_t)((void **)b[1])[2]) return 0;
  for (int64_t i = 1; i <= n; ++i)
    if (starts[i] - starts[0] != others[i] - others[0]) return 0;
  size_t size = (size_t)(starts[n] - starts[0]);
  return !size || !memcmp((const char *)a[5] + starts[0], (const char *)b[5] + others[0], size);
}

/* Texts in a chunk. Returns 0 if they are to be read from a stream. */
static int open_chunk(struct reading_frame *r, int64_t i) {
  const struct frame_api *api = r->f->api;
  void **array = r->opened[i].at;
  if (!array) return 0;
  void **data = array[1];
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

int hbtvm_open_texts(struct reading_frame *r, int64_t i) {
  const struct frame_api *api = r->f->api;
  void *chunks = r->opened[i].chunks;
  if (open_chunk(r, i)) return 1;
  void *capsule = chunks ? api->call(chunks, api->stream, NULL) : NULL;
  struct ArrowArrayStream *stream = capsule ? r->p->capsule(capsule, "arrow_array_stream") : NULL;
  int opened = stream && open_stream(r, i, stream);
  if (!stream) api->clear();
  if (capsule) r->p->drop(capsule);
  return opened;
}
