/* Rows that are dicts of Python by column name: one, or a list of them. As with frames, whatever differs from the
 * expected returns null, and Python reads the rows: missing keys, values besides None and exact floats, integers of 64
 * bits, bools and texts. */
#include <stdlib.h>

#include "python/frame.h"

/* Set before the first call, and never changed. */
static struct dict_api api;

void hbtvm_dicts(const struct dict_api *given) { api = *given; }

int hbtvm_are_dicts(const struct frame_reader *f, const void *rows) {
  const void *type = FIELD(const void *, rows, hbtvm_python()->type_at);
  return api.dict_type && (type == api.dict_type || type == api.list_type) && f->records;
}

static int load(const struct python *p, void *object, struct value *out) {
  const void *type = FIELD(const void *, object, p->type_at);
  if (object == p->none) return 1; /* `out` is zeros: a null */
  if (type == api.float_type) {
    out->kind = HBTVM_NUMBER;
    out->number = api.number(object);
    return 1;
  }
  if (type == api.text_type) {
    intptr_t size;
    out->kind = HBTVM_TEXT;
    out->text = (const uint8_t *)api.text(object, &size);
    out->size = (int64_t)size;
    return out->text != NULL;
  }
  int overflow = type != api.integer_type && type != api.bool_type;
  if (overflow) return 0;
  out->kind = HBTVM_INTEGER;
  out->integer = api.integer(object, &overflow);
  return !overflow;
}

/* Read a row. Values are borrowed from its dict: looking up texts and reading such values runs no Python. The loops
 * fetch the values side by side. objects: memory, by column. */
static int read_dict(const struct frame_reader *f, void *row, int64_t at, int64_t n, void **objects,
                     struct value *values) {
  const struct python *p = hbtvm_python();
  const struct front *front = f->records;
  if (FIELD(const void *, row, p->type_at) != api.dict_type) return 0;
  for (int64_t i = 0; i < front->count; ++i) {
    if (!front->columns[i].read) continue;
    objects[i] = api.item(row, f->names[i]);
    if (!objects[i]) return 0;
    __builtin_prefetch(objects[i]);
    __builtin_prefetch((const char *)objects[i] + 48);
  }
  for (int64_t i = 0; i < front->count; ++i)
    if (front->columns[i].read && !load(p, objects[i], &values[i * n + at])) return 0;
  return 1;
}

/* The columns of a bare model are numbers, as Python reads them. values: replaced. */
static int to_numbers(struct value *values, int64_t n) {
  double *numbers = (double *)(void *)values; /* each is written after the value there is read */
  for (int64_t row = 0; row < n; ++row) {
    if (values[row].kind == HBTVM_TEXT) return 0;
    double x = as_number(values[row]);
    memcpy(&numbers[row], &x, sizeof x);
  }
  return 1;
}

void *hbtvm_dict_matrix(const struct frame_reader *f, void *rows, int64_t *type, int64_t *n) {
  const struct front *front = f->records;
  int one = FIELD(const void *, rows, hbtvm_python()->type_at) == api.dict_type;
  *n = one ? 1 : (int64_t)api.size(rows);
  if (*n < 1 || *n > f->most) return NULL;
  size_t count = (size_t)front->count, cells = count * (size_t)*n;
  struct column *columns = calloc(1, count * (sizeof *columns + sizeof(void *)) + cells * sizeof(struct value));
  if (!columns) return NULL;
  struct value *values = (struct value *)(void *)(columns + count);
  void **objects = (void **)(void *)(values + cells), *matrix = NULL;
  for (int64_t i = 0; i < front->count; ++i) __builtin_prefetch(f->names[i]);
  int known = 1;
  for (int64_t row = 0; known && row < *n; ++row)
    known = read_dict(f, one ? rows : f->api->list_item(rows, (intptr_t)row), row, *n, objects, values);
  for (int64_t i = 0; known && i < front->count; ++i) {
    struct value *column = values + i * *n;
    columns[i] = (struct column){.type = VALUES, .n = *n, .data = (const uint8_t *)column};
    if (!front->feeds) {
      columns[i].type = DOUBLE;
      known = to_numbers(column, *n);
    }
  }
  struct arrow_place place;
  struct reading reading = {front, &place, *n, columns, NULL, 0};
  if (!known || (front->feeds ? read_feeds : read_bare)(&reading, type, &matrix)) {
    free(matrix);
    matrix = NULL;
  }
  free(columns);
  f->api->clear();
  return matrix;
}
