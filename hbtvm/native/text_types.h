/* What `hbtvm.runtime.text_kernel` lays out for the functions of `text.c`, and the memory of one call. */
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

/* Entries of `maps`: a code point; `SEVERAL`, with a place in `expansions` from bit 8 on and a count below;
 * `CONTEXT`, for a character whose lower case depends on those beside it; or `SAME`, for one that stays. */
#define CONTEXT 0x7fffffffu
#define SAME 0x7ffffffeu
#define SEVERAL 0x80000000u

#define RANGES 4

#define NO_COLUMN (-1)
#define STOP_WORD (-2)
/* Bytes after the end of texts that hashing may read. */
#define PADDING 16
/* Bytes of a text that are marked at a time. */
#define BLOCK 64

enum { FAILED = -1, DONE = 0, NEEDS_CONTEXT = 1 };

/* What tells terms apart: see `key_of`. */
struct key {
  uint64_t first, second;
};

struct slot {
  struct key key;
  int32_t column; /* NO_COLUMN where the slot is free */
  uint32_t start; /* of a long term's bytes in `pool` */
};

struct stage {
  int64_t kind;
  const double *scale; /* SCALE: by column */
  const int32_t *place; /* SELECT: the new column of each column, or NO_COLUMN */
};

struct text {
  int64_t analyzer, whole, least, shortest, longest;
  int64_t lowercase, plain; /* plain: whether all characters of words that ASCII has may be in a token */
  const uint8_t *token_ranges, *space_ranges; /* of ASCII: how many (up to RANGES), then the first and last of each */
  const uint16_t *class_page; /* by a code point's upper bits: the page of its class */
  const uint8_t *classes; /* pages of 256 */
  const uint16_t *map_page; /* NULL: other characters than ASCII's stay as they are */
  const uint32_t *maps;
  const uint32_t *expansions;
  int64_t hashed, alternate_sign; /* columns of hashes; 0 for a vocabulary */
  int64_t stop_words; /* whether there are any in `slots` */
  const struct slot *slots;
  int64_t bits; /* of a slot's number */
  const uint8_t *pool;
  int64_t stages;
  const struct stage *stage;
  const double *ahead; /* what the first stage that scales reads by column, or NULL */
  int64_t terms; /* columns before all stages */
  int64_t width, outputs;
  const double *weight; /* shape (width, outputs); NULL for rows of `width` values */
};

struct input {
  const uint8_t *bytes; /* TERMS: with PADDING bytes behind the last one */
  const void *offsets; /* text i is bytes[offsets[i]:offsets[i + 1]] */
  int64_t wide; /* whether offsets are of 64 bits, not 32 */
  const int64_t *rows; /* TERMS: row i is the texts rows[i] to rows[i + 1], each a term */
  const double *values; /* TERMS: by term; NULL for 1 */
};

struct entry {
  int32_t column;
  double value;
};

/* A term that waits for its slot to come into the cache. */
struct waiting {
  struct key key;
  const uint8_t *s;
  size_t size;
  uint32_t mark; /* see `struct work` */
};

#define QUEUE 64

/* Memory of one call. */
struct work {
  uint8_t *text, *joined;
  size_t text_room, joined_room;
  int ascii; /* whether all of `text` is ASCII */
  uint64_t *bits; /* one for each of its bytes, of a class */
  size_t bits_room;
  size_t *start; /* where characters or tokens begin in `text` or `joined`, and where the last one ends */
  size_t start_room;
  /* The row's terms, as many as there are in its text: a column above 32 bits, below a mark: for hashes whether it
   * counts -1, for terms with values the place of the term in its row. */
  uint64_t *found, *sorted;
  size_t count, found_room, sorted_room;
  const double *values; /* by that place; NULL for 1 */
  double *number; /* values of Python's objects, likewise */
  size_t number_room;
  struct entry *entry;
  size_t entries, entry_room;
  struct waiting queue[QUEUE];
  size_t queued;
  int any_long; /* whether one of these is in the pool */
};

/* Returns whether an array has room for a number of items, which is made if it has not. */
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
