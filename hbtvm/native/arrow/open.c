/* Columns of Arrow's C data interface: their types, and consistency checks of their buffers. */
#include "arrow/internal.h"

#define BAD HBTVM_ARROW_MALFORMED

static int type_of(const char *format, enum column_type *type) {
  static const struct {
    const char *format;
    enum column_type type;
  } known[] = {{"n", NULLS}, {"b", BOOLS}, {"c", I8},   {"s", I16},    {"i", I32},    {"l", I64},   {"C", U8},
               {"S", U16},   {"I", U32},   {"L", U64},  {"e", HALF},   {"f", SINGLE}, {"g", DOUBLE}, {"u", TEXTS},
               {"U", LARGE_TEXTS}, {"vu", TEXT_VIEWS}};
  if (!format) return BAD;
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
    if (!strcmp(format, known[i].format)) {
      *type = known[i].type;
      return HBTVM_OK;
    }
  return HBTVM_ARROW_TYPE;
}

static int64_t buffers_of(enum column_type type) {
  if (type == NULLS) return 0;
  return type == TEXTS || type == LARGE_TEXTS ? 3 : 2;
}

/* The length, offset and first buffers of an array. */
static int check_array(const struct ArrowArray *a, enum column_type type) {
  if (!a || !a->release) return BAD;
  if (a->length < 0 || a->offset < 0 || a->offset > INT64_MAX / 32 - a->length || a->null_count < -1) return BAD;
  if (a->null_count > a->length) return BAD;
  /* Before format 1.0, null arrays had a bitmap too. */
  if (type == NULLS) return HBTVM_OK;
  if (type == TEXT_VIEWS ? a->n_buffers < 3 : a->n_buffers != buffers_of(type)) return BAD;
  if (!a->buffers) return BAD;
  if (!a->buffers[0] && a->null_count > 0) return BAD;
  return a->length && !a->buffers[1] ? BAD : HBTVM_OK;
}

static int64_t offset_at(const struct column *c, int64_t i) {
  if (c->type == LARGE_TEXTS) {
    int64_t x;
    memcpy(&x, c->data + 8 * i, sizeof x);
    return x;
  }
  int32_t x;
  memcpy(&x, c->data + 4 * i, sizeof x);
  return x;
}

static int check_texts(const struct column *c) {
  if (!c->n) return HBTVM_OK;
  int64_t last = offset_at(c, c->offset);
  if (last < 0) return BAD;
  for (int64_t i = 1; i <= c->n; ++i) {
    int64_t next = offset_at(c, c->offset + i);
    if (next < last) return BAD;
    last = next;
  }
  return last > offset_at(c, c->offset) && !c->bytes ? BAD : HBTVM_OK;
}

/* A view: a size and 12 inline bytes; or a size, 4 bytes, a buffer, and the text's offset there. */
static int check_views(const struct column *c, const struct ArrowArray *a) {
  int64_t count = a->n_buffers - 3;
  const uint8_t *sizes = a->buffers[a->n_buffers - 1];
  if (count && !sizes) return BAD;
  for (int64_t i = 0; i < c->n; ++i) {
    int32_t view[4];
    if (is_null(c, i)) continue;
    memcpy(view, c->data + 16 * (c->offset + i), sizeof view);
    if (view[0] < 0) return BAD;
    if (view[0] <= 12) continue;
    if (view[2] < 0 || view[2] >= count || view[3] < 0) return BAD;
    int64_t size;
    memcpy(&size, sizes + 8 * view[2], sizeof size);
    if (!c->views[view[2]] || (int64_t)view[3] + view[0] > size) return BAD;
  }
  return HBTVM_OK;
}

static int check_levels(const struct column *c) {
  for (int64_t i = 0; i < c->n; ++i) {
    if (is_null(c, i)) continue;
    int64_t at = level_of(c, i);
    if (at < 0 || at >= c->levels->n) return BAD;
  }
  return HBTVM_OK;
}

/* Fill in a column whose rows start `offset` after the array's own offset. */
static int fill_in(const struct ArrowSchema *schema, const struct ArrowArray *a, int64_t offset, int64_t n,
                   struct column *out) {
  enum column_type type;
  int status = schema && schema->release ? type_of(schema->format, &type) : BAD;
  if (status) return status;
  status = check_array(a, type);
  if (status) return status;
  if (offset > a->length || n > a->length - offset) return BAD;
  out->type = type;
  out->n = n;
  out->offset = a->offset + offset;
  if (type == NULLS) return HBTVM_OK;
  out->valid = a->buffers[0];
  out->data = a->buffers[1];
  if (type == TEXTS || type == LARGE_TEXTS) out->bytes = a->buffers[2];
  if (type == TEXT_VIEWS) out->views = a->buffers + 2;
  return HBTVM_OK;
}

static int check_values(const struct column *c, const struct ArrowArray *a) {
  if (c->type == TEXTS || c->type == LARGE_TEXTS) return check_texts(c);
  return c->type == TEXT_VIEWS ? check_views(c, a) : HBTVM_OK;
}

int open_column(const struct ArrowSchema *schema, const struct ArrowArray *array, const struct ArrowArray *batch,
                struct column *out) {
  memset(out, 0, sizeof *out);
  if (!schema || !array) return BAD;
  int status = fill_in(schema, array, batch->offset, batch->length, out);
  if (status) return status;
  /* Rows of a batch may be null. */
  if (batch->n_buffers == 1 && batch->buffers) out->batch_valid = batch->buffers[0];
  out->batch_offset = batch->offset;
  if (!schema->dictionary != !array->dictionary) return BAD;
  if (!schema->dictionary) return check_values(out, array);
  if (out->type < I8 || out->type > U64) return BAD;
  if (schema->dictionary->dictionary) return HBTVM_ARROW_TYPE;
  out->levels = calloc(1, sizeof *out->levels);
  if (!out->levels) return HBTVM_NO_MEMORY;
  status = fill_in(schema->dictionary, array->dictionary, 0, array->dictionary->length, out->levels);
  if (!status) status = check_values(out->levels, array->dictionary);
  out->index = out->type;
  out->type = LEVELS;
  return status ? status : check_levels(out);
}

void close_column(struct column *column) { free(column->levels); }
