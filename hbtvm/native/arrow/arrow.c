/* Reader of Arrow record batches; see arrow.h. */
#include "arrow/arrow.h"

#include "arrow/internal.h"

void *new_array(int64_t n, int64_t width, size_t size) {
  size_t count = (size_t)n;
  if (width > 0 && count > SIZE_MAX / size / (size_t)width) return NULL;
  count *= (size_t)width;
  return malloc(count ? count * size : 1);
}

int fail(struct reading *r, int status, int64_t column, int64_t row) {
  r->place->row = row;
  r->place->column = column;
  r->place->given = column < 0 || !r->given ? -1 : r->given[column];
  return status;
}

/* Return whether the array and its schema are a record batch. */
static int check_batch(const struct ArrowSchema *schema, const struct ArrowArray *batch) {
  if (!schema->release || !batch->release || !schema->format || strcmp(schema->format, "+s")) return 0;
  if (schema->n_children < 0 || schema->n_children != batch->n_children) return 0;
  if (schema->n_children && (!schema->children || !batch->children)) return 0;
  if (batch->length < 0 || batch->offset < 0 || batch->offset > INT64_MAX / 32 - batch->length) return 0;
  if (batch->null_count < -1 || batch->null_count > batch->length || batch->n_buffers != 1) return 0;
  if (schema->dictionary || batch->dictionary) return 0;
  return batch->null_count <= 0 || (batch->buffers && batch->buffers[0]);
}

static int open_columns(struct reading *r, const struct ArrowSchema *schema, const struct ArrowArray *batch) {
  for (int64_t i = 0; i < r->front->count; ++i) {
    if (r->front->feeds && !r->front->columns[i].read) continue;
    int64_t at = r->given[i];
    int status = open_column(schema->children[at], batch->children[at], batch, &r->column[i]);
    if (status) return fail(r, status, i, -1);
    const struct column *values = r->column[i].levels ? r->column[i].levels : &r->column[i];
    int whole = values->type >= BOOLS && values->type <= U64;
    if (whole && r->front->columns[i].refuses >> (values->type - BOOLS) & 1)
      return fail(r, HBTVM_ARROW_TYPE, i, -1);
  }
  return HBTVM_OK;
}

int hbtvm_read_arrow(const struct front *front, const struct ArrowSchema *schema, const struct ArrowArray *batch,
                     int64_t *type, struct rows *out, struct arrow_place *place) {
  struct arrow_place own;
  if (!front || !schema || !batch || !type || !out) return HBTVM_BAD_ARGUMENT;
  if (front->version != HBTVM_FRONT_VERSION) return HBTVM_BAD_ARGUMENT;
  if (!place) place = &own;
  *place = (struct arrow_place){-1, -1, -1};
  *out = (struct rows){NULL, 0, 0};
  if (!check_batch(schema, batch)) return HBTVM_ARROW_MALFORMED;
  struct reading r = {front, place, batch->length, NULL, NULL, 0};
  r.column = calloc((size_t)front->count + 1, sizeof *r.column);
  r.given = calloc((size_t)front->count + 1, sizeof *r.given);
  int status = r.column && r.given ? find_columns(&r, schema) : HBTVM_NO_MEMORY;
  if (!status) status = open_columns(&r, schema, batch);
  if (!status) status = (front->feeds ? read_feeds : read_bare)(&r, type, &out->values);
  if (!status) {
    out->n = batch->length;
    out->columns = front->width;
  } else {
    free(out->values);
    out->values = NULL;
  }
  for (int64_t i = 0; r.column && i < front->count; ++i) close_column(&r.column[i]);
  free(r.column);
  free(r.given);
  return status;
}

void hbtvm_release_rows(struct rows *rows) {
  if (!rows) return;
  free(rows->values);
  *rows = (struct rows){NULL, 0, 0};
}
