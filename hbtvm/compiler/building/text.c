/* Texts to weighted terms, as scikit-learn's vectorizers make them: sparse rows, dense rows, or weighted sums.
 *
 * A text is brought into one form (lower case, accents), cut into terms, and each term becomes a column: by a
 * table of the vocabulary, or by its hash. The terms of one text are counted, changed by stages (`enum stage_kind`),
 * and then written or summed up with weights, so that a linear model needs no sparse matrix.
 *
 * Inputs are only read, and may hold any bytes. Tables are checked before they come here
 * (`hbtvm.runtime.text_tables`). There is no global state: several threads may use one `struct text`.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum analyzer_kind { WORDS, CHARACTERS, CHARACTERS_IN_WORDS, TERMS };
enum stage_kind { BINARY, LOGARITHM, SCALE, NORM_L1, NORM_L2, NORM_MAX, SELECT };
enum character_class { WORD = 1, TOKEN = 2, SPACE = 4 };

/* Entries of `maps`: a code point; `SEVERAL`, with a place in `expansions` from bit 8 on and a count below;
 * `CONTEXT`, for a character whose lower case depends on those beside it; or `SAME`, for one that stays. */
#define CONTEXT 0x7fffffffu
#define SAME 0x7ffffffeu
#define SEVERAL 0x80000000u

#define NO_COLUMN (-1)
#define STOP_WORD (-2)
/* Bytes after the end of texts that hashing may read. */
#define PADDING 16

enum { FAILED = -1, DONE = 0, NEEDS_CONTEXT = 1 };

struct slot {
  uint32_t tag;
  int32_t column; /* NO_COLUMN where the slot is free */
  uint32_t start, size; /* of the term's bytes in `pool` */
};

struct stage {
  int64_t kind;
  const double *scale; /* SCALE: by column */
  const int32_t *place; /* SELECT: the new column of each column, or NO_COLUMN */
};

struct text {
  int64_t analyzer, whole, least, shortest, longest;
  int64_t lowercase;
  const uint16_t *class_page; /* by a code point's upper bits: the page of its class */
  const uint8_t *classes; /* pages of 256 */
  const uint16_t *map_page; /* NULL: other characters than ASCII's stay as they are */
  const uint32_t *maps;
  const uint32_t *expansions;
  int64_t hashed, alternate_sign; /* columns of hashes; 0 for a vocabulary */
  int64_t stop_words; /* whether there are any in `slots` */
  const struct slot *slots;
  uint64_t mask; /* number of slots - 1 */
  const uint8_t *pool;
  int64_t stages;
  const struct stage *stage;
  const double *ahead; /* what the first stage that scales reads by column, or NULL */
  int64_t width, outputs;
  const double *weight; /* shape (width, outputs); NULL for rows of `width` values */
};

struct input {
  const uint8_t *bytes;
  const void *offsets; /* text i is bytes[offsets[i]:offsets[i + 1]] */
  int64_t wide; /* whether offsets are of 64 bits, not 32 */
  const int64_t *rows; /* TERMS: row i is the texts rows[i] to rows[i + 1], each a term */
  const double *values; /* TERMS: by term; NULL for 1 */
};

struct entry {
  int32_t column;
  double value;
};

struct seen {
  uint32_t stamp, index;
};

/* A term that waits for its slot to come into the cache. */
struct waiting {
  uint64_t hash;
  const uint8_t *s;
  size_t size;
  double value;
};

#define QUEUE 32

/* Memory of one call. */
struct work {
  uint8_t *text, *joined;
  size_t text_room, joined_room;
  size_t *start; /* where characters or tokens begin in `text` or `joined`, and where the last one ends */
  size_t start_room;
  struct entry *entry;
  size_t entries, entry_room;
  struct seen *seen; /* columns of the current text: a table with open addressing */
  size_t seen_mask;
  uint32_t stamp;
  struct waiting queue[QUEUE];
  size_t queued;
};

/* Returns whether an array has room for a number of items, which is made if it has not. */
static int room(void **array, size_t *have, size_t need, size_t size) {
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
  free(w->text), free(w->joined), free(w->start), free(w->entry), free(w->seen);
}

/* The code point at `s`, and how many bytes it takes: one where they are none. Lone surrogates are code points. */
static inline uint32_t decode(const uint8_t *s, const uint8_t *end, size_t *size) {
  uint32_t c = s[0];
  ptrdiff_t left = end - s;
  if (c < 0x80) {
    *size = 1;
    return c;
  }
  if (c >= 0xc2 && c < 0xe0 && left > 1 && (s[1] & 0xc0) == 0x80) {
    *size = 2;
    return (c & 0x1f) << 6 | (s[1] & 0x3f);
  }
  if (c >= 0xe0 && c < 0xf0 && left > 2 && (s[1] & 0xc0) == 0x80 && (s[2] & 0xc0) == 0x80) {
    uint32_t found = (c & 0x0f) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3f);
    *size = found < 0x800 ? 1 : 3;
    return found < 0x800 ? 0xfffd : found;
  }
  if (c >= 0xf0 && c < 0xf5 && left > 3 && (s[1] & 0xc0) == 0x80 && (s[2] & 0xc0) == 0x80 && (s[3] & 0xc0) == 0x80) {
    uint32_t found = (c & 0x07) << 18 | (uint32_t)(s[1] & 0x3f) << 12 | (uint32_t)(s[2] & 0x3f) << 6 | (s[3] & 0x3f);
    int good = found >= 0x10000 && found < 0x110000;
    *size = good ? 4 : 1;
    return good ? found : 0xfffd;
  }
  *size = 1;
  return 0xfffd;
}

static inline size_t encode(uint32_t c, uint8_t *s) {
  if (c < 0x80) {
    s[0] = (uint8_t)c;
    return 1;
  }
  if (c < 0x800) {
    s[0] = (uint8_t)(0xc0 | c >> 6), s[1] = (uint8_t)(0x80 | (c & 0x3f));
    return 2;
  }
  if (c < 0x10000) {
    s[0] = (uint8_t)(0xe0 | c >> 12), s[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f)), s[2] = (uint8_t)(0x80 | (c & 0x3f));
    return 3;
  }
  s[0] = (uint8_t)(0xf0 | c >> 18), s[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
  s[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f)), s[3] = (uint8_t)(0x80 | (c & 0x3f));
  return 4;
}

/* The class of the character at `s`, and how many bytes it takes. `ascii` is the page of the first characters. */
static inline int class_at(const struct text *t, const uint8_t *ascii, const uint8_t *s, const uint8_t *end,
                           size_t *size) {
  if (*s < 0x80) {
    *size = 1;
    return ascii[*s];
  }
  uint32_t c = decode(s, end, size);
  return t->classes[(size_t)t->class_page[c >> 8] << 8 | (c & 0xff)];
}

static inline const uint8_t *ascii_of(const struct text *t) { return t->classes + ((size_t)t->class_page[0] << 8); }

static inline uint8_t lower(uint8_t c) { return (uint8_t)(c + ((uint8_t)(c - 'A') < 26 ? 32 : 0)); }

/* Writes a text's form for analysis to `w->text`, with PADDING after it. */
static int normalize(const struct text *t, struct work *w, const uint8_t *s, size_t n, size_t *size) {
  if (!room((void **)&w->text, &w->text_room, n + PADDING + 4, 1)) return FAILED;
  uint8_t any = 0;
  for (size_t i = 0; i < n; ++i) any |= s[i];
  if (any < 0x80 || !t->map_page) {
    uint8_t *out = w->text;
    if (t->lowercase && any < 0x80)
      for (size_t i = 0; i < n; ++i) out[i] = lower(s[i]);
    else if (n)
      memcpy(out, s, n);
    *size = n;
    memset(out + n, 0, PADDING);
    return DONE;
  }
  const uint8_t *end = s + n;
  size_t at = 0;
  while (s < end) {
    if (*s < 0x80) {
      /* Room for the rest of the text was made before. */
      w->text[at++] = t->lowercase ? lower(*s) : *s;
      ++s;
      continue;
    }
    size_t taken;
    uint32_t c = decode(s, end, &taken);
    uint32_t to = t->maps[(size_t)t->map_page[c >> 8] << 8 | (c & 0xff)];
    s += taken;
    if (to == CONTEXT) return NEEDS_CONTEXT;
    if (to == SAME) to = c;
    const uint32_t *from = &to;
    size_t count = 1;
    if (to & SEVERAL) {
      from = t->expansions + ((to & ~SEVERAL) >> 8);
      count = to & 0xff;
    }
    if (!room((void **)&w->text, &w->text_room, at + 4 * count + (size_t)(end - s) + PADDING, 1)) return FAILED;
    for (size_t i = 0; i < count; ++i) at += encode(from[i], w->text + at);
  }
  *size = at;
  memset(w->text + at, 0, PADDING);
  return DONE;
}

/* The first `n` bytes of the eight at `s`, the others 0. */
static inline uint64_t head(const uint8_t *s, size_t n) {
  uint64_t word;
  memcpy(&word, s, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return n < 8 ? word & ((UINT64_C(1) << 8 * n) - 1) : word;
}

static inline uint64_t hash(const uint8_t *s, size_t n) {
  uint64_t h = n * UINT64_C(0x9e3779b97f4a7c15);
  while (n > 8) {
    h = (h ^ head(s, 8)) * UINT64_C(0xff51afd7ed558ccd);
    h ^= h >> 32;
    s += 8, n -= 8;
  }
  h = (h ^ head(s, n)) * UINT64_C(0xff51afd7ed558ccd);
  h ^= h >> 29;
  h *= UINT64_C(0xc4ceb9fe1a85ec53);
  return h ^ h >> 32;
}

static inline int same(const uint8_t *a, const uint8_t *b, size_t n) {
  for (; n > 8; a += 8, b += 8, n -= 8)
    if (head(a, 8) != head(b, 8)) return 0;
  return head(a, n) == head(b, n);
}

/* A term's column in the vocabulary, by its hash. PADDING bytes behind the term can be read. */
static inline int32_t find(const struct text *t, uint64_t h, const uint8_t *s, size_t n) {
  for (uint64_t i = h & t->mask;; i = (i + 1) & t->mask) {
    const struct slot *slot = &t->slots[i];
    if (slot->column == NO_COLUMN) return NO_COLUMN;
    if (slot->tag == (uint32_t)(h >> 32) && slot->size == n && same(t->pool + slot->start, s, n)) return slot->column;
  }
}

/* MurmurHash3 of 32 bits by Austin Appleby (public domain), seed 0. */
static uint32_t murmur(const uint8_t *s, size_t n) {
  uint32_t h = 0;
  size_t blocks = n / 4;
  for (size_t i = 0; i < blocks; ++i) {
    uint32_t k = (uint32_t)s[4 * i] | (uint32_t)s[4 * i + 1] << 8 | (uint32_t)s[4 * i + 2] << 16 |
                 (uint32_t)s[4 * i + 3] << 24;
    k *= 0xcc9e2d51u;
    k = k << 15 | k >> 17;
    h ^= k * 0x1b873593u;
    h = h << 13 | h >> 19;
    h = h * 5 + 0xe6546b64u;
  }
  uint32_t k = 0;
  for (size_t i = n & 3; i > 0; --i) k = k << 8 | s[4 * blocks + i - 1];
  k *= 0xcc9e2d51u;
  k = k << 15 | k >> 17;
  h ^= k * 0x1b873593u;
  h ^= (uint32_t)n;
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  return h ^ h >> 16;
}

static int grow_seen(struct work *w) {
  size_t size = w->seen ? 2 * (w->seen_mask + 1) : 256;
  struct seen *larger = calloc(size, sizeof *larger);
  if (!larger) return 0;
  free(w->seen);
  w->seen = larger;
  w->seen_mask = size - 1;
  w->stamp = 1;
  for (size_t j = 0; j < w->entries; ++j) {
    size_t i = (uint32_t)w->entry[j].column * 0x9e3779b1u & w->seen_mask;
    while (larger[i].stamp == 1) i = (i + 1) & w->seen_mask;
    larger[i] = (struct seen){1, (uint32_t)j};
  }
  return 1;
}

/* Adds to the value of a column of the current text. */
static inline int add(struct work *w, int32_t column, double value) {
  if (!w->seen || 2 * w->entries > w->seen_mask)
    if (!grow_seen(w)) return FAILED;
  size_t i = (uint32_t)column * 0x9e3779b1u & w->seen_mask;
  for (; w->seen[i].stamp == w->stamp; i = (i + 1) & w->seen_mask) {
    struct entry *known = &w->entry[w->seen[i].index];
    if (known->column == column) {
      known->value += value;
      return DONE;
    }
  }
  if (!room((void **)&w->entry, &w->entry_room, w->entries + 1, sizeof *w->entry)) return FAILED;
  w->seen[i] = (struct seen){w->stamp, (uint32_t)w->entries};
  w->entry[w->entries++] = (struct entry){column, value};
  return DONE;
}

/* Adds the terms that wait, which have to be where they were. A large vocabulary is not in the cache: its slots, then
 * the terms there, then what belongs to their columns are asked for ahead. */
static int look_up(const struct text *t, struct work *w) {
  size_t n = w->queued;
  w->queued = 0;
  for (size_t i = 0; i < n; ++i) {
    const struct slot *slot = &t->slots[w->queue[i].hash & t->mask];
    if (slot->column >= 0) __builtin_prefetch(t->pool + slot->start);
  }
  for (size_t i = 0; i < n; ++i) {
    const struct waiting *one = &w->queue[i];
    int32_t column = find(t, one->hash, one->s, one->size);
    if (column < 0) continue;
    if (t->ahead) __builtin_prefetch(t->ahead + column);
    if (t->weight && t->outputs <= 8) __builtin_prefetch(t->weight + (size_t)column * (size_t)t->outputs);
    if (add(w, column, one->value)) return FAILED;
  }
  return DONE;
}

static inline int term(const struct text *t, struct work *w, const uint8_t *s, size_t n, double value) {
  if (t->hashed) {
    int32_t h = (int32_t)murmur(s, n);
    uint32_t size = h < 0 ? 0u - (uint32_t)h : (uint32_t)h;
    int32_t column = (int32_t)(size % (uint32_t)t->hashed);
    return add(w, column, t->alternate_sign && h < 0 ? -value : value);
  }
  if (w->queued == QUEUE && look_up(t, w)) return FAILED;
  uint64_t h = hash(s, n);
  __builtin_prefetch(&t->slots[h & t->mask]);
  w->queue[w->queued++] = (struct waiting){h, s, n, value};
  return DONE;
}

/* Sequences of tokens, which stand in `joined` with a space between any two. */
static int word_ngrams(const struct text *t, struct work *w, size_t tokens) {
  size_t longest = (uint64_t)t->longest < tokens ? (size_t)t->longest : tokens;
  for (size_t n = (size_t)t->shortest; n <= longest; ++n)
    for (size_t i = 0; i + n <= tokens; ++i) {
      /* A token begins behind the space that the one before ends with. */
      const uint8_t *s = w->joined + w->start[i];
      if (term(t, w, s, w->start[i + n] - w->start[i] - 1, 1.0)) return FAILED;
    }
  return DONE;
}

static int words(const struct text *t, struct work *w, size_t size) {
  const uint8_t *s = w->text, *end = s + size, *ascii = ascii_of(t);
  int wanted = t->whole ? WORD : TOKEN;
  size_t tokens = 0, joined = 0;
  for (;;) {
    size_t taken = 0;
    while (s < end && !(class_at(t, ascii, s, end, &taken) & wanted)) s += taken;
    if (s == end) break;
    const uint8_t *first = s;
    int all = TOKEN;
    int64_t count = 0;
    for (; s < end; s += taken, ++count) {
      int kind = class_at(t, ascii, s, end, &taken);
      if (!(kind & wanted)) break;
      all &= kind;
    }
    if (count < t->least || !all) continue;
    size_t n = (size_t)(s - first);
    if (t->stop_words && find(t, hash(first, n), first, n) == STOP_WORD) continue;
    if (t->longest == 1) {
      if (term(t, w, first, n, 1.0)) return FAILED;
      continue;
    }
    if (!room((void **)&w->joined, &w->joined_room, joined + n + 1 + PADDING, 1)) return FAILED;
    if (!room((void **)&w->start, &w->start_room, tokens + 2, sizeof *w->start)) return FAILED;
    w->start[tokens++] = joined;
    memcpy(w->joined + joined, first, n);
    joined += n;
    w->joined[joined++] = ' ';
    w->start[tokens] = joined;
  }
  return tokens ? word_ngrams(t, w, tokens) : DONE;
}

/* Notes where the characters of a text begin. Returns how many there are, or SIZE_MAX without memory. */
static size_t characters_of(struct work *w, const uint8_t *s, size_t size) {
  size_t count = 0;
  for (size_t at = 0; at < size;) {
    size_t taken;
    decode(s + at, s + size, &taken);
    if (!room((void **)&w->start, &w->start_room, count + 2, sizeof *w->start)) return SIZE_MAX;
    w->start[count++] = at;
    at += taken;
  }
  if (!room((void **)&w->start, &w->start_room, count + 1, sizeof *w->start)) return SIZE_MAX;
  w->start[count] = size;
  return count;
}

/* Replaces each run of several spaces by one space; returns the new size. */
static size_t squeeze(const struct text *t, struct work *w, size_t size) {
  uint8_t *text = w->text;
  const uint8_t *ascii = ascii_of(t);
  size_t at = 0, to = 0;
  while (at < size) {
    size_t from = at, run = 0, taken;
    while (at < size && class_at(t, ascii, text + at, text + size, &taken) & SPACE) at += taken, ++run;
    if (run > 1)
      text[to++] = ' ';
    else if (run)
      memmove(text + to, text + from, at - from), to += at - from;
    if (at == size) break;
    from = at;
    decode(text + at, text + size, &taken);
    at += taken;
    memmove(text + to, text + from, taken);
    to += taken;
  }
  memset(text + to, 0, PADDING);
  return to;
}

static int characters(const struct text *t, struct work *w, size_t size) {
  size = squeeze(t, w, size);
  size_t count = characters_of(w, w->text, size);
  if (count == SIZE_MAX) return FAILED;
  size_t longest = (uint64_t)t->longest < count ? (size_t)t->longest : count;
  for (size_t n = (size_t)t->shortest; n <= longest; ++n)
    for (size_t i = 0; i + n <= count; ++i)
      if (term(t, w, w->text + w->start[i], w->start[i + n] - w->start[i], 1.0)) return FAILED;
  return DONE;
}

static int characters_in_words(const struct text *t, struct work *w, size_t size) {
  const uint8_t *s = w->text, *end = s + size, *ascii = ascii_of(t);
  while (s < end) {
    size_t taken;
    if (class_at(t, ascii, s, end, &taken) & SPACE) {
      s += taken;
      continue;
    }
    const uint8_t *first = s;
    while (s < end && !(class_at(t, ascii, s, end, &taken) & SPACE)) s += taken;
    size_t n = (size_t)(s - first) + 2;
    if (!room((void **)&w->joined, &w->joined_room, n + PADDING, 1)) return FAILED;
    uint8_t *word = w->joined;
    word[0] = word[n - 1] = ' ';
    memcpy(word + 1, first, n - 2);
    size_t count = characters_of(w, word, n);
    if (count == SIZE_MAX) return FAILED;
    for (size_t length = (size_t)t->shortest; length <= (size_t)t->longest; ++length) {
      if (length >= count) {
        /* A word that is too short counts once, whatever the lengths. */
        if (term(t, w, word, n, 1.0)) return FAILED;
        break;
      }
      for (size_t i = 0; i + length <= count; ++i)
        if (term(t, w, word + w->start[i], w->start[i + length] - w->start[i], 1.0)) return FAILED;
    }
    /* The next word takes this one's place. */
    if (look_up(t, w)) return FAILED;
  }
  return DONE;
}

static inline uint64_t offset(const struct input *in, int64_t i) {
  return in->wide ? ((const uint64_t *)in->offsets)[i] : ((const uint32_t *)in->offsets)[i];
}

/* The terms of a row, each as it is. */
static int terms(const struct text *t, struct work *w, const struct input *in, int64_t row) {
  for (int64_t i = in->rows[row]; i < in->rows[row + 1]; ++i) {
    uint64_t first = offset(in, i), end = offset(in, i + 1);
    size_t n = end > first ? (size_t)(end - first) : 0;
    if (!room((void **)&w->text, &w->text_room, n + PADDING, 1)) return FAILED;
    if (n) memcpy(w->text, in->bytes + first, n);
    memset(w->text + n, 0, PADDING);
    if (term(t, w, w->text, n, in->values ? in->values[i] : 1.0) || look_up(t, w)) return FAILED;
  }
  return DONE;
}

static void divide(struct work *w, double by) {
  if (by == 0.0) return;
  for (size_t i = 0; i < w->entries; ++i) w->entry[i].value /= by;
}

static void run(const struct stage *stage, struct work *w) {
  struct entry *e = w->entry;
  size_t n = w->entries, kept = 0;
  double sum = 0.0;
  switch (stage->kind) {
    case BINARY:
      for (size_t i = 0; i < n; ++i) e[i].value = 1.0;
      break;
    case LOGARITHM:
      for (size_t i = 0; i < n; ++i) e[i].value = e[i].value == 1.0 ? 1.0 : log(e[i].value) + 1.0;
      break;
    case SCALE:
      for (size_t i = 0; i < n; ++i) e[i].value *= stage->scale[e[i].column];
      break;
    case NORM_L1:
      for (size_t i = 0; i < n; ++i) sum += fabs(e[i].value);
      divide(w, sum);
      break;
    case NORM_L2:
      for (size_t i = 0; i < n; ++i) sum += e[i].value * e[i].value;
      divide(w, sqrt(sum));
      break;
    case NORM_MAX:
      for (size_t i = 0; i < n; ++i) sum = fabs(e[i].value) > sum ? fabs(e[i].value) : sum;
      divide(w, sum);
      break;
    case SELECT:
      for (size_t i = 0; i < n; ++i)
        if (stage->place[e[i].column] != NO_COLUMN) {
          e[kept].value = e[i].value;
          e[kept++].column = stage->place[e[i].column];
        }
      w->entries = kept;
      break;
  }
}

/* The terms of one row after all stages, in `w->entry`. */
static int row_of(const struct text *t, struct work *w, const struct input *in, int64_t row) {
  int done = DONE;
  w->entries = w->queued = 0;
  if (++w->stamp == 0) {
    if (w->seen) memset(w->seen, 0, (w->seen_mask + 1) * sizeof *w->seen);
    w->stamp = 1;
  }
  if (t->analyzer == TERMS) {
    done = terms(t, w, in, row);
  } else {
    uint64_t first = offset(in, row), end = offset(in, row + 1);
    size_t size = 0;
    done = normalize(t, w, in->bytes + first, end > first ? (size_t)(end - first) : 0, &size);
    if (done) return done;
    if (t->analyzer == WORDS)
      done = words(t, w, size);
    else
      done = t->analyzer == CHARACTERS ? characters(t, w, size) : characters_in_words(t, w, size);
  }
  if (done || look_up(t, w)) return FAILED;
  for (int64_t i = 0; i < t->stages; ++i) run(&t->stage[i], w);
  return DONE;
}

static void sum_up(const struct text *t, const struct work *w, double *out) {
  if (!t->weight) {
    memset(out, 0, (size_t)t->width * sizeof *out);
    for (size_t i = 0; i < w->entries; ++i) out[w->entry[i].column] = w->entry[i].value;
    return;
  }
  size_t outputs = (size_t)t->outputs;
  if (outputs == 1) {
    double total = 0.0;
    for (size_t i = 0; i < w->entries; ++i) total += w->entry[i].value * t->weight[w->entry[i].column];
    *out = total;
    return;
  }
  for (size_t o = 0; o < outputs; ++o) out[o] = 0.0;
  for (size_t i = 0; i < w->entries; ++i) {
    const double *weight = t->weight + (size_t)w->entry[i].column * outputs;
    double value = w->entry[i].value;
    for (size_t o = 0; o < outputs; ++o) out[o] += value * weight[o];
  }
}

/* Changes with the structures above, and with what the functions below take. */
int64_t hbtvm_text_version(void) { return 1; }

/* Weighted sums, or all values, of rows `first` to `last`.
 *
 * out: shape (last - first, outputs or width). context: one byte for each row, which is 1 where the row has to be
 * brought into lower case first. Returns the number of such rows, or FAILED without memory.
 */
int64_t hbtvm_text_sums(const struct text *t, const struct input *in, int64_t first, int64_t last, double *out,
                        uint8_t *context) {
  struct work w = {0};
  int64_t waiting = 0;
  size_t size = (size_t)(t->weight ? t->outputs : t->width);
  for (int64_t i = first; i < last; ++i) {
    int done = row_of(t, &w, in, i);
    if (done == FAILED) {
      drop(&w);
      return FAILED;
    }
    waiting += context[i - first] = done == NEEDS_CONTEXT;
    if (done == NEEDS_CONTEXT) w.entries = 0;
    sum_up(t, &w, out + (size_t)(i - first) * size);
  }
  drop(&w);
  return waiting;
}

/* As `hbtvm_text_sums`, for one text. */
int64_t hbtvm_text_one(const struct text *t, const uint8_t *bytes, int64_t size, double *out) {
  int64_t offsets[2] = {0, size};
  struct input in = {bytes, offsets, 1, NULL, NULL};
  uint8_t context = 0;
  return hbtvm_text_sums(t, &in, 0, 1, out, &context);
}

static int by_column(const void *a, const void *b) {
  int32_t x = ((const struct entry *)a)->column, y = ((const struct entry *)b)->column;
  return (x > y) - (x < y);
}

static void sort(struct work *w) {
  struct entry *e = w->entry;
  if (w->entries > 48) {
    qsort(e, w->entries, sizeof *e, by_column);
    return;
  }
  for (size_t i = 1; i < w->entries; ++i) {
    struct entry one = e[i];
    size_t j = i;
    for (; j > 0 && e[j - 1].column > one.column; --j) e[j] = e[j - 1];
    e[j] = one;
  }
}

/* Sparse rows (CSR) of the rows `first` to `last`, in the order of their columns.
 *
 * columns, values: room for `space` entries. ends: for each row, how many entries there are up to its end.
 * context: as for `hbtvm_text_sums`. needed: how many entries the first row has that found no room, 0 if all did.
 * Returns the number of rows that are complete, or FAILED without memory.
 */
int64_t hbtvm_text_rows(const struct text *t, const struct input *in, int64_t first, int64_t last, int64_t space,
                        int32_t *columns, double *values, int64_t *ends, uint8_t *context, int64_t *needed) {
  struct work w = {0};
  int64_t used = 0;
  *needed = 0;
  for (int64_t i = first; i < last; ++i) {
    int done = row_of(t, &w, in, i);
    if (done == FAILED) {
      drop(&w);
      return FAILED;
    }
    context[i - first] = done == NEEDS_CONTEXT;
    if (done == NEEDS_CONTEXT) w.entries = 0;
    if ((int64_t)w.entries > space - used) {
      *needed = (int64_t)w.entries;
      drop(&w);
      return i - first;
    }
    sort(&w);
    for (size_t j = 0; j < w.entries; ++j) {
      columns[used] = w.entry[j].column;
      values[used++] = w.entry[j].value;
    }
    ends[i - first] = used;
  }
  drop(&w);
  return last - first;
}

/* Fills a table with terms: term i is pool[starts[i]:starts[i + 1]], and belongs to column i, or is a stop word from
 * `columns` on. Slots are free at first, more of them than terms. A term that is there already keeps its column, but
 * for stop words, which are never counted as terms by themselves. `pool` has PADDING bytes after the last term. */
void hbtvm_text_fill(struct slot *slots, uint64_t mask, const uint8_t *pool, const uint32_t *starts, int64_t terms,
                     int64_t columns) {
  for (int64_t i = 0; i < terms; ++i) {
    const uint8_t *s = pool + starts[i];
    uint32_t n = starts[i + 1] - starts[i];
    uint64_t h = hash(s, n), at = h & mask;
    for (; slots[at].column != NO_COLUMN; at = (at + 1) & mask)
      if (slots[at].tag == (uint32_t)(h >> 32) && slots[at].size == n && same(pool + slots[at].start, s, n)) break;
    int32_t column = i < columns ? (int32_t)i : STOP_WORD;
    if (slots[at].column == NO_COLUMN || column == STOP_WORD)
      slots[at] = (struct slot){(uint32_t)(h >> 32), column, starts[i], n};
  }
}
