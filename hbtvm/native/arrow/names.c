/* Positions of a model's columns in a batch. */
#include "arrow/internal.h"

static const char *name_of(const struct ArrowSchema *schema, int64_t at) {
  const struct ArrowSchema *child = schema->children[at];
  return child && child->name ? child->name : "";
}

/* Compare names. LightGBM replaces spaces in names by underscores. */
static int same(const char *a, const char *b, int spaces) {
  for (; *a && *b; ++a, ++b) {
    char x = spaces && *a == ' ' ? '_' : *a, y = spaces && *b == ' ' ? '_' : *b;
    if (x != y) return 0;
  }
  return *a == *b;
}

/* Hash table of the names with 2^bits slots; -1 marks a free slot. */
struct index {
  int64_t *slot;
  uint64_t mask;
};

static uint64_t hash_of(const char *name, int spaces) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (; *name; ++name) {
    uint8_t byte = spaces && *name == ' ' ? '_' : (uint8_t)*name;
    hash = (hash ^ byte) * UINT64_C(0x100000001b3);
  }
  return hash ^ hash >> 32;
}

/* Return the first index of a name, or -1; `get` returns the name of an index. */
typedef const char *getter(const void *of, int64_t at);

static const char *given_name(const void *schema, int64_t at) { return name_of(schema, at); }

static const char *own_name(const void *front, int64_t at) {
  const char *name = ((const struct front *)front)->columns[at].name;
  return name ? name : "";
}

static int64_t find(const struct index *x, getter *get, const void *of, const char *name, int spaces, uint64_t *free) {
  uint64_t at = hash_of(name, spaces) & x->mask;
  while (x->slot[at] >= 0 && !same(get(of, x->slot[at]), name, spaces)) at = (at + 1) & x->mask;
  if (free) *free = at;
  return x->slot[at];
}

static int make(struct index *x, getter *get, const void *of, int64_t count, int spaces) {
  uint64_t size = 4;
  while (size < 2 * (uint64_t)count) size *= 2;
  x->mask = size - 1;
  x->slot = new_array((int64_t)size, 1, sizeof *x->slot);
  if (!x->slot) return HBTVM_NO_MEMORY;
  for (uint64_t i = 0; i < size; ++i) x->slot[i] = -1;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t at;
    if (find(x, get, of, get(of, i), spaces, &at) < 0) x->slot[at] = i;
  }
  return HBTVM_OK;
}

static int by_name(struct reading *r, const struct ArrowSchema *schema) {
  const struct front *f = r->front;
  struct index found;
  int status = make(&found, given_name, schema, schema->n_children, 0);
  if (status) return status;
  for (int64_t i = 0; i < f->count && !status; ++i) {
    if (!f->columns[i].read) continue;
    r->given[i] = find(&found, given_name, schema, own_name(f, i), 0, NULL);
    if (r->given[i] < 0) status = fail(r, HBTVM_ARROW_MISSING_COLUMN, i, -1);
  }
  /* A duplicate column is an error, but only if all others exist. */
  for (int64_t j = 0; j < schema->n_children && !status; ++j) {
    int64_t first = find(&found, given_name, schema, name_of(schema, j), 0, NULL);
    for (int64_t i = 0; first != j && i < f->count && !status; ++i)
      if (f->columns[i].read && r->given[i] == first) status = fail(r, HBTVM_ARROW_COLUMN_TWICE, i, -1);
  }
  free(found.slot);
  return status;
}

static int compare(struct reading *r, const struct ArrowSchema *schema) {
  const struct front *f = r->front;
  int64_t n = schema->n_children, at = 0;
  while (at < n && at < f->count && same(name_of(schema, at), own_name(f, at), 1)) ++at;
  if (at == n && at == f->count) return HBTVM_OK;
  struct index found;
  int status = make(&found, given_name, schema, n, 1);
  if (status) return status;
  for (int64_t i = 0; i < f->count && !status; ++i)
    if (find(&found, given_name, schema, own_name(f, i), 1, NULL) < 0) {
      r->given[i] = -1;
      status = fail(r, HBTVM_ARROW_MISSING_COLUMN, i, -1);
    }
  free(found.slot);
  if (status) return status;
  status = make(&found, own_name, f, f->count, 1);
  if (status) return status;
  for (int64_t j = 0; j < n && !status; ++j)
    if (find(&found, own_name, f, name_of(schema, j), 1, NULL) < 0) {
      status = fail(r, HBTVM_ARROW_EXTRA_COLUMN, -1, -1);
      r->place->given = j;
    }
  /* Only a duplicate can follow the last column. */
  if (!status && at == f->count) {
    int64_t again = find(&found, own_name, f, name_of(schema, at), 1, NULL);
    status = fail(r, HBTVM_ARROW_COLUMN_TWICE, again, -1);
    r->place->given = at;
  }
  free(found.slot);
  return status ? status : fail(r, HBTVM_ARROW_COLUMN_ORDER, at, -1);
}

int find_columns(struct reading *r, const struct ArrowSchema *schema) {
  const struct front *f = r->front;
  for (int64_t i = 0; i < schema->n_children; ++i)
    if (!schema->children[i]) return HBTVM_ARROW_MALFORMED;
  if (f->naming == HBTVM_BY_NAME) return by_name(r, schema);
  for (int64_t i = 0; i < f->count; ++i) r->given[i] = i;
  int status = f->naming == HBTVM_IN_ORDER ? compare(r, schema) : HBTVM_OK;
  if (!status && schema->n_children != f->count) status = fail(r, HBTVM_ARROW_COLUMN_COUNT, -1, -1);
  return status;
}
