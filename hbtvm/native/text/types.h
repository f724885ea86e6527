/* Structures that `hbtvm.runtime.text.kernel` lays out for the functions of `text.c`, and the memory of a call. */
#ifndef HBTVM_TEXT_TYPES_H
#define HBTVM_TEXT_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum analyzer_kind { WORDS, CHARACTERS, CHARACTERS_IN_WORDS, TERMS };
enum stage_kind { BINARY, LOGARITHM, SCALE, NORM_L1, NORM_L2, NORM_MAX, SELECT };
enum character_class { WORD = 1, TOKEN = 2, SPACE = 4 };
enum value_type { FLOAT64, FLOAT32, INT64 };

/* Entries of `maps`: a code point; `SEVERAL`, with an index in `expansions` from bit 8 on and a count below; `CONTEXT`,
 * for a character whose lower case depends on its neighbours; or `SAME`, for an unchanged character. */
#define CONTEXT 0x7fffffffu
#define SAME 0x7ffffffeu
#define SEVERAL 0x80000000u

#define RANGES 4

#define NO_COLUMN (-1)
#define STOP_WORD (-2)
/* Bytes after the end of texts that hashing may read. */
#define PADDING 16
/* Bytes of a text marked at a time. */
#define BLOCK 64

enum { FAILED = -1, DONE = 0, NEEDS_CONTEXT = 1 };

/* The identity of a term: see `key_of`. */
struct key {
  uint64_t first, second;
};

struct slot {
  struct key key;
  int32_t column; /* NO_COLUMN if the slot is free */
  uint32_t start; /* index of a long term's bytes in `pool` */
};

struct stage {
  int64_t kind;
  const double *scale; /* SCALE: by column */
  const int32_t *place; /* SELECT: the new column of each column, or NO_COLUMN */
};

struct text {
  int64_t analyzer, whole, least, shortest, longest;
  int64_t lowercase, plain; /* plain: whether all ASCII word characters may be in a token */
  const uint8_t *token_ranges, *space_ranges; /* of ASCII: their number (up to RANGES), then the first and last of
                                               * each */
  const uint16_t *class_page; /* by a code point's upper bits: the page of its class */
  const uint8_t *classes; /* pages of 256 */
  const uint16_t *map_page; /* NULL: non-ASCII characters are unchanged */
  const uint32_t *maps;
  const uint32_t *expansions;
  int64_t hashed, alternate_sign; /* number of columns for hashing; 0 for a vocabulary */
  int64_t stop_words; /* whether `slots` has any */
  const struct slot *slots;
  int64_t bits; /* of a slot's index */
  const uint8_t *pool;
  int64_t stages;
  const struct stage *stage;
  const double *ahead; /* the factors of the first scaling stage by column, or NULL */
  int64_t terms; /* columns before all stages */
  int64_t width, outputs;
  const double *weight; /* shape (width, outputs); NULL for rows of `width` values */
};

struct input {
  const uint8_t *bytes; /* TERMS: with PADDING bytes after the last */
  const void *offsets; /* text i is bytes[offsets[i]:offsets[i + 1]] */
  int64_t wide; /* whether offsets have 64 bits, not 32 */
  const int64_t *rows; /* TERMS: row i consists of the texts rows[i] to rows[i + 1], each a term */
  const double *values; /* TERMS: by term; NULL for 1 */
};

struct entry {
  int32_t column;
  double value;
};

/* A pending term, whose slot is being prefetched. */
struct waiting {
  struct key key;
  const uint8_t *s;
  size_t size;
  uint32_t mark; /* see `struct work` */
};

#define QUEUE 64

/* Memory of a call. */
struct work {
  uint8_t *text, *joined;
  size_t text_room, joined_room;
  int ascii; /* whether all of `text` is ASCII */
  uint64_t *bits; /* class bits, one for each of its bytes */
  size_t bits_room;
  size_t *start; /* starts of characters or tokens in `text` or `joined`, and the end of the last */
  size_t start_room;
  /* The row's terms: a column above 32 bits, and a mark below: for hashing, whether the term counts -1; for terms with
   * values, the term's index in its row. */
  uint64_t *found, *sorted;
  size_t count, found_room, sorted_room;
  const double *values; /* by that index; NULL for 1 */
  double *number; /* values of Python's objects, likewise */
  size_t number_room;
  struct entry *entry;
  size_t entries, entry_room;
  struct waiting queue[QUEUE];
  size_t queued;
  int any_long; /* whether any is in the pool */
};

/* Return whether an array has room for a number of items, and grow it if necessary. */
static inline int room(void **array, size_t *have, size_t need, size_t size) {
  if (need <= *have) return 1;
  size_t more = *have + *have / 2 + 64;
  if (more < need) more = need;
  if (more > SIZE_MAX / size) return 0;
  void *larger = realloc(*array, more * size);
  if (!larger) return 0;
  *array = larger;
  *have = more;
  return 1;
}

static void drop(struct work *w) {
  free(w->text), free(w->joined), free(w->bits), free(w->start), free(w->found), free(w->sorted), free(w->entry);
  free(w->number);
}

#endif
