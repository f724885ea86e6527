/* Texts and features out of Python's objects, copied one behind the other.
 *
 * Nothing of Python is needed to compile this: the functions that it calls, all of the stable interface, come from the
 * interpreter that calls it. It has to hold the interpreter's lock. Nothing is called that may run Python code, so
 * that no object changes while it is read.
 */
#ifndef HBTVM_TEXT_PYTHON_H
#define HBTVM_TEXT_PYTHON_H

#include "text_types.h"

enum container { POINTERS, LIST, TUPLE };
enum features { TEXTS, STRINGS, DICTS, PAIRS, ANY_DICTS };

#define NUMBERS 8

struct python {
  const char *(*utf8)(void *, ptrdiff_t *);
  ptrdiff_t (*list_size)(void *);
  void *(*list_item)(void *, ptrdiff_t);
  ptrdiff_t (*tuple_size)(void *);
  void *(*tuple_item)(void *, ptrdiff_t);
  int (*dict_next)(void *, ptrdiff_t *, void **, void **);
  double (*number)(void *);
  void *(*error)(void);
  void (*forget_error)(void);
  int64_t type_at; /* where an object has the address of its type */
  const void *str, *list, *tuple, *dict;
  const void *numbers[NUMBERS]; /* none of which runs Python code to become a double */
};

/* What was read. All that it points to is released by `hbtvm_text_release`. */
struct gathered {
  uint8_t *bytes;
  int64_t *offsets, *rows;
  double *values;
  int64_t texts;
  size_t size, room, offset_room, value_room, row_room;
  int64_t valued; /* whether a value is other than 1 */
};

/* Where objects lie: a list, a tuple, or pointers with so many bytes from one to the next. */
struct objects {
  int64_t container;
  void *at;
  int64_t stride;
};

static inline const void *type_of(const struct python *p, const void *object) {
  const void *type;
  memcpy(&type, (const char *)object + p->type_at, sizeof type);
  return type;
}

static inline void *item(const struct python *p, const struct objects *from, int64_t i) {
  if (from->container == LIST) return p->list_item(from->at, i);
  if (from->container == TUPLE) return p->tuple_item(from->at, i);
  void *object;
  memcpy(&object, (char *)from->at + i * from->stride, sizeof object);
  return object;
}

/* The items of a list or a tuple; 0 if an object is none. */
static inline int items(const struct python *p, void *object, struct objects *out, int64_t *count) {
  const void *type = object ? type_of(p, object) : NULL;
  if (!type || (type != p->list && type != p->tuple)) return 0;
  *out = (struct objects){type == p->list ? LIST : TUPLE, object, 0};
  *count = type == p->list ? p->list_size(object) : p->tuple_size(object);
  return 1;
}

/* Whether so many bytes more, and the text that they belong to, have room. */
static inline int more(struct gathered *g, size_t bytes) {
  return room((void **)&g->bytes, &g->room, g->size + bytes + PADDING, 1) &&
         room((void **)&g->offsets, &g->offset_room, (size_t)g->texts + 2, sizeof *g->offsets);
}

enum { READ = 0, OTHER = 1 }; /* OTHER: something that Python itself has to read */

/* A text's bytes; NULL if it is none, or has no UTF-8. */
static inline const char *utf8_of(const struct python *p, void *object, ptrdiff_t *size) {
  const char *s = object ? p->utf8(object, size) : NULL;
  if (object && !s) p->forget_error();
  return s;
}

static inline int add_text(const struct python *p, struct gathered *g, void *object) {
  ptrdiff_t n;
  const char *s = utf8_of(p, object, &n);
  if (!s) return OTHER;
  if (!more(g, (size_t)n)) return FAILED;
  memcpy(g->bytes + g->size, s, (size_t)n);
  g->size += (size_t)n;
  g->offsets[++g->texts] = (int64_t)g->size;
  return READ;
}

/* A feature: a name with a number, or a name and a text that are one term. */
static inline int add_feature(const struct python *p, struct gathered *g, void *name, void *value, int64_t features,
                              const char *separator, size_t separator_size) {
  if (!name || !value || type_of(p, name) != p->str) return OTHER;
  const void *type = type_of(p, value);
  double number = 1.0;
  if (type != p->str) {
    int kind = 0;
    while (kind < NUMBERS && type != p->numbers[kind]) ++kind;
    if (kind == NUMBERS) return OTHER;
    number = p->number(value);
    if (number == -1.0 && p->error()) {
      p->forget_error();
      return OTHER;
    }
    if (number == 0.0 && features != ANY_DICTS) return READ;
  }
  int done = add_text(p, g, name);
  if (done) return done;
  if (type == p->str) {
    ptrdiff_t n;
    const char *s = utf8_of(p, value, &n);
    if (!s) return OTHER;
    if (!more(g, (size_t)n + separator_size)) return FAILED;
    memcpy(g->bytes + g->size, separator, separator_size);
    memcpy(g->bytes + g->size + separator_size, s, (size_t)n);
    g->size += (size_t)n + separator_size;
    g->offsets[g->texts] = (int64_t)g->size;
  }
  if (!room((void **)&g->values, &g->value_room, (size_t)g->texts, sizeof *g->values)) return FAILED;
  g->values[g->texts - 1] = number;
  g->valued |= number != 1.0;
  return READ;
}

static int add_row(const struct python *p, struct gathered *g, void *row, int64_t features, const char *separator,
                   size_t separator_size) {
  if (features == DICTS || features == ANY_DICTS) {
    if (!row || type_of(p, row) != p->dict) return OTHER;
    ptrdiff_t at = 0;
    void *name, *value;
    while (p->dict_next(row, &at, &name, &value)) {
      int done = add_feature(p, g, name, value, features, separator, separator_size);
      if (done) return done;
    }
    return READ;
  }
  struct objects from, pair;
  int64_t count, two;
  if (!items(p, row, &from, &count)) return OTHER;
  for (int64_t i = 0; i < count; ++i) {
    void *one = item(p, &from, i);
    int done;
    if (features == STRINGS) {
      done = add_text(p, g, one);
    } else {
      if (!items(p, one, &pair, &two) || two != 2) return OTHER;
      done = add_feature(p, g, item(p, &pair, 0), item(p, &pair, 1), features, separator, separator_size);
    }
    if (done) return done;
  }
  return READ;
}

void hbtvm_text_release(struct gathered *g) { free(g->bytes), free(g->offsets), free(g->rows), free(g->values); }

/* Reads rows of objects; of TEXTS, one text each.
 *
 * width: of STRINGS, the texts of each row where these lie one behind the other without a list of their own; else 0.
 * Returns READ, OTHER where Python has to read them, or FAILED without memory; what was read then is released.
 */
int64_t hbtvm_text_read(const struct python *p, const struct objects *from, int64_t count, int64_t width,
                        int64_t features, const char *separator, int64_t separator_size, struct gathered *g) {
  memset(g, 0, sizeof *g);
  int done = READ;
  if (!more(g, 0) || !room((void **)&g->rows, &g->row_room, features == TEXTS ? 1 : (size_t)count + 1, 8)) {
    hbtvm_text_release(g);
    return FAILED;
  }
  g->offsets[0] = g->rows[0] = 0;
  /* The caller counted them without the lock, or with it before others had it. */
  if (from->container == LIST && p->list_size(from->at) != count) done = OTHER;
  for (int64_t i = 0; i < count && !done; ++i) {
    if (features == TEXTS) {
      done = add_text(p, g, item(p, from, i));
      continue;
    }
    if (width)
      for (int64_t j = 0; j < width && !done; ++j) done = add_text(p, g, item(p, from, i * width + j));
    else
      done = add_row(p, g, item(p, from, i), features, separator, (size_t)separator_size);
    g->rows[i + 1] = g->texts;
  }
  if (done) {
    hbtvm_text_release(g);
    memset(g, 0, sizeof *g);
    return done;
  }
  memset(g->bytes + g->size, 0, PADDING);
  return READ;
}

#endif
