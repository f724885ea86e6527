/* Python's objects: texts, which are copied consecutively, and features, which become terms as they are read.
 *
 * Compiling this does not need Python: the functions that it calls, all of the stable interface, come from the calling
 * interpreter, which must hold its lock. It calls nothing that may run Python code, so that no object changes while it
 * is read.
 */
#ifndef HBTVM_TEXT_PYTHON_H
#define HBTVM_TEXT_PYTHON_H

#include "text/terms.h"

enum container { POINTERS, LIST, TUPLE };
enum form { TEXTS, STRINGS, DICTS, PAIRS, ANY_DICTS };

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
  int64_t type_at; /* offset of an object's type pointer */
  const void *str, *list, *tuple, *dict;
  const void *numbers[NUMBERS]; /* types whose conversion to double runs no Python code */
};

/* Copied texts. `hbtvm_text_release` releases all memory that it points to. */
struct gathered {
  uint8_t *bytes;
  int64_t *offsets;
  int64_t texts;
  size_t size, room, offset_room;
};

/* The location of objects: a list, a tuple, or pointers with this stride in bytes. */
struct objects {
  int64_t container;
  void *at;
  int64_t stride;
  int64_t count;
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

/* Return the items of a list or a tuple; 0 for other objects. */
static inline int items(const struct python *p, void *object, struct objects *out) {
  const void *type = object ? type_of(p, object) : NULL;
  if (!type || (type != p->list && type != p->tuple)) return 0;
  int list = type == p->list;
  *out = (struct objects){list ? LIST : TUPLE, object, 0, list ? p->list_size(object) : p->tuple_size(object)};
  return 1;
}

enum { READ = 0, OTHER = -2 }; /* OTHER: an object that Python must read */

/* Return a string's bytes; NULL if it is not a string, or has no UTF-8. */
static inline const uint8_t *utf8_of(const struct python *p, void *object, size_t *size) {
  ptrdiff_t n = 0;
  const char *s = object ? p->utf8(object, &n) : NULL;
  if (object && !s) p->forget_error();
  *size = (size_t)n;
  return (const uint8_t *)s;
}

/* Return whether a list still has the length that the caller saw. */
static inline int is_as_long(const struct python *p, const struct objects *from) {
  return from->container != LIST || p->list_size(from->at) == from->count;
}

/* The format of rows of features. */
struct features {
  int64_t kind;
  int64_t width; /* of STRINGS: number per row if rows have no lists; else 0 */
  const uint8_t *separator; /* between a feature's name and its text */
  int64_t separator_size;
};

/* Add a feature: a name with a number, or a name and a text, which form a term. `place` counts a row's features. */
static inline int feature(const struct text *t, struct work *w, const struct python *p, const struct features *f,
                          void *name, void *value, uint32_t *place) {
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
    if (number == 0.0 && f->kind != ANY_DICTS) return READ;
  }
  if (!room((void **)&w->number, &w->number_room, (size_t)*place + 1, sizeof *w->number)) return FAILED;
  w->number[*place] = number;
  size_t n, more, between = (size_t)f->separator_size;
  const uint8_t *s = utf8_of(p, name, &n);
  if (!s) return OTHER;
  if (type != p->str) return term_exactly(t, w, s, n, (*place)++);
  const uint8_t *text = utf8_of(p, value, &more);
  if (!text) return OTHER;
  if (!room((void **)&w->text, &w->text_room, n + between + more + PADDING, 1)) return FAILED;
  memcpy(w->text, s, n);
  memcpy(w->text + n, f->separator, between);
  memcpy(w->text + n + between, text, more);
  struct beginning from = BEGINNING;
  if (term(t, w, &from, w->text, n + between + more, (*place)++)) return FAILED;
  /* The next feature reuses its place. */
  return look_up(t, w);
}

static inline int string(const struct text *t, struct work *w, const struct python *p, void *object) {
  size_t n;
  const uint8_t *s = utf8_of(p, object, &n);
  return s ? term_exactly(t, w, s, n, 0) : OTHER;
}

/* Add the terms of a row. */
static int features_of(const struct text *t, struct work *w, const struct python *p, const struct features *f,
                       const struct objects *rows, int64_t row) {
  uint32_t place = 0;
  int done = READ;
  w->values = NULL;
  if (f->width) {
    for (int64_t i = 0; i < f->width && !done; ++i) done = string(t, w, p, item(p, rows, row * f->width + i));
    return done;
  }
  void *object = item(p, rows, row);
  if (f->kind == DICTS || f->kind == ANY_DICTS) {
    if (!object || type_of(p, object) != p->dict) return OTHER;
    ptrdiff_t at = 0;
    void *name, *value;
    while (!done && p->dict_next(object, &at, &name, &value)) done = feature(t, w, p, f, name, value, &place);
    w->values = w->number;
    return done;
  }
  struct objects from, pair;
  if (!items(p, object, &from) || from.count >> 31) return OTHER;
  if (f->kind == STRINGS) {
    for (int64_t i = 0; i < from.count && !done; ++i) done = string(t, w, p, item(p, &from, i));
    return done;
  }
  for (int64_t i = 0; i < from.count && !done; ++i) {
    if (!items(p, item(p, &from, i), &pair) || pair.count != 2) return OTHER;
    done = feature(t, w, p, f, item(p, &pair, 0), item(p, &pair, 1), &place);
  }
  w->values = w->number;
  return done;
}

void hbtvm_text_release(struct gathered *g) { free(g->bytes), free(g->offsets); }

/* Copy texts. Return READ, OTHER if Python must read them, or FAILED if memory is short; only READ needs a release. */
int64_t hbtvm_text_read(const struct python *p, const struct objects *from, struct gathered *g) {
  memset(g, 0, sizeof *g);
  if (!is_as_long(p, from)) return OTHER;
  int done = room((void **)&g->offsets, &g->offset_room, (size_t)from->count + 1, sizeof *g->offsets) &&
                     room((void **)&g->bytes, &g->room, PADDING, 1)
                 ? READ
                 : FAILED;
  if (!done) g->offsets[0] = 0;
  for (; !done && g->texts < from->count; ++g->texts) {
    size_t n;
    const uint8_t *s = utf8_of(p, item(p, from, g->texts), &n);
    if (!s) {
      done = OTHER;
    } else if (!room((void **)&g->bytes, &g->room, g->size + n + PADDING, 1)) {
      done = FAILED;
    } else {
      memcpy(g->bytes + g->size, s, n);
      g->size += n;
      g->offsets[g->texts + 1] = (int64_t)g->size;
    }
  }
  if (done) {
    hbtvm_text_release(g);
    memset(g, 0, sizeof *g);
  }
  return done;
}

#endif
