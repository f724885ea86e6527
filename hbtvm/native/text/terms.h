/* Conversion of terms to columns, by a hash table of the vocabulary or by hashing; and of columns to counted entries.
 *
 * Terms that start at the same place are hashed consecutively, each from the state after the previous.
 */
#ifndef HBTVM_TEXT_TERMS_H
#define HBTVM_TEXT_TERMS_H

#include "text/types.h"

/* Return the first `n` bytes of the eight at `s`, zero-padded. */
static inline uint64_t head(const uint8_t *s, size_t n) {
  uint64_t word;
  memcpy(&word, s, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return n < 8 ? word & ((UINT64_C(1) << 8 * n) - 1) : word;
}

/* Return the last `n` of the bytes before `end`, of which there are at least eight; `n` is less than eight. */
static inline uint64_t tail(const uint8_t *end, size_t n) {
  /* (By 64 bits at once nothing is shifted.) */
  return head(end - 8, 8) >> 4 * (8 - n) >> 4 * (8 - n);
}

/* Terms of up to this many bytes are their own keys, together with their size. */
#define SHORT 15
#define LONG (UINT64_C(0xff) << 56)

/* Masks of a term's first and second eight bytes, by its size. */
static const uint64_t own_bytes[2][SHORT + 1] = {
#define BYTES(n) ((UINT64_C(1) << 8 * (n)) - 1)
    {0, BYTES(1), BYTES(2), BYTES(3), BYTES(4), BYTES(5), BYTES(6), BYTES(7), ~UINT64_C(0), ~UINT64_C(0),
     ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0)},
    {0, 0, 0, 0, 0, 0, 0, 0, 0, BYTES(1), BYTES(2), BYTES(3), BYTES(4), BYTES(5), BYTES(6), BYTES(7)},
#undef BYTES
};

/* The hash of a term's prefix, of whole words of eight bytes. */
struct prefix {
  uint64_t hash;
  size_t done;
};

#define PREFIX ((struct prefix){UINT64_C(0x9e3779b97f4a7c15), 0})

/* Return the key of a term of `n` bytes, which is not shorter than the prefixes hashed so far. */
static inline struct key key_of(struct prefix *from, const uint8_t *s, size_t n) {
  if (n <= SHORT)
    return (struct key){head(s, 8) & own_bytes[0][n], (head(s + 8, 8) & own_bytes[1][n]) | (uint64_t)n << 56};
  uint64_t h = from->hash;
  size_t done = from->done;
  for (; n - done >= 8; done += 8) {
    h = (h ^ head(s + done, 8)) * UINT64_C(0xff51afd7ed558ccd);
    h ^= h >> 32;
  }
  *from = (struct prefix){h, done};
  h = (h ^ tail(s + n, n - done) ^ (uint64_t)n << 56) * UINT64_C(0xff51afd7ed558ccd);
  h ^= h >> 29;
  return (struct key){h, (uint64_t)n | LONG};
}

/* As `key_of`, for a whole term after which no bytes may be read. */
static inline struct key key_of_exactly(const uint8_t *s, size_t n) {
  struct prefix from = PREFIX;
  if (n > SHORT) return key_of(&from, s, n);
  if (n >= 8) return (struct key){head(s, 8), tail(s + n, n - 8) | (uint64_t)n << 56};
  uint8_t padded[8] = {0};
  for (size_t i = 0; i < n; ++i) padded[i] = s[i];
  return (struct key){head(padded, 8), (uint64_t)n << 56};
}

static inline uint64_t slot_of(struct key key, int64_t bits) {
  uint64_t h = key.first ^ key.second * UINT64_C(0xc4ceb9fe1a85ec53);
  h ^= h >> 32;
  return h * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits);
}

/* Return whether a slot holds a term. */
static inline int is_term(const struct slot *slot, struct key key, const uint8_t *pool, const uint8_t *s, size_t n) {
  if (slot->key.first != key.first || slot->key.second != key.second) return 0;
  return n <= SHORT || !memcmp(pool + slot->start, s, n);
}

/* Return a term's column in the vocabulary, by its key. PADDING bytes after the term are readable. */
static inline int32_t find(const struct text *t, struct key key, const uint8_t *s, size_t n) {
  uint64_t mask = (UINT64_C(1) << t->bits) - 1;
  for (uint64_t i = slot_of(key, t->bits);; i = (i + 1) & mask) {
    const struct slot *slot = &t->slots[i];
    if (is_term(slot, key, t->pool, s, n)) return slot->column;
    if (slot->column == NO_COLUMN) return NO_COLUMN;
  }
}

/* Convert the pending terms, whose bytes must not have moved, to columns. A large vocabulary is not in the cache: its
 * slots, then their terms, then their columns' data are prefetched. */
static int look_up(const struct text *t, struct work *w) {
  size_t n = w->queued;
  w->queued = 0;
  if (!room((void **)&w->found, &w->found_room, w->count + n, sizeof *w->found)) return FAILED;
  if (w->any_long) {
    w->any_long = 0;
    for (size_t i = 0; i < n; ++i) {
      const struct slot *slot = &t->slots[slot_of(w->queue[i].key, t->bits)];
      if (w->queue[i].size > SHORT) __builtin_prefetch(t->pool + slot->start);
    }
  }
  uint64_t *out = w->found + w->count;
  for (size_t i = 0; i < n; ++i) {
    const struct waiting *one = &w->queue[i];
    int32_t column = find(t, one->key, one->s, one->size);
    *out = (uint64_t)(uint32_t)column << 32 | one->mark;
    if (column < 0) continue;
    ++out;
    if (t->ahead) __builtin_prefetch(t->ahead + column);
    if (t->weight && t->outputs <= 8) __builtin_prefetch(t->weight + (size_t)column * (size_t)t->outputs);
  }
  w->count = (size_t)(out - w->found);
  return DONE;
}

/* MurmurHash3 of 32 bits by Austin Appleby (public domain), seed 0; the state after whole words of four bytes. */
struct murmur {
  uint32_t hash;
  size_t done;
};

static inline uint32_t murmur_mixed(uint32_t k) {
  k *= 0xcc9e2d51u;
  k = k << 15 | k >> 17;
  return k * 0x1b873593u;
}

static inline uint32_t murmur_word(const uint8_t *s) {
  return (uint32_t)s[0] | (uint32_t)s[1] << 8 | (uint32_t)s[2] << 16 | (uint32_t)s[3] << 24;
}

static inline uint32_t murmur_step(uint32_t h, uint32_t word) {
  h ^= murmur_mixed(word);
  h = h << 13 | h >> 19;
  return h * 5 + 0xe6546b64u;
}

static inline uint32_t murmur_end(uint32_t h, uint32_t last, size_t n) {
  /* For no bytes, this changes nothing. */
  h ^= murmur_mixed(last);
  h ^= (uint32_t)n;
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  return h ^ h >> 16;
}

static inline uint32_t murmur(struct murmur *from, const uint8_t *s, size_t n) {
  uint32_t h = from->hash, last = 0;
  size_t done = from->done;
  if (n >= 4 && n < 12 && !done) {
    /* Names of one or two words, as most are, need no branch. */
    uint32_t one = murmur_step(h, murmur_word(s)), two = murmur_step(one, murmur_word(s + (n >= 8 ? 4 : 0)));
    last = (uint32_t)((uint64_t)murmur_word(s + n - 4) >> (32 - 8 * (n & 3)));
    return murmur_end(n >= 8 ? two : one, last, n);
  }
  for (; n - done >= 4; done += 4) h = murmur_step(h, murmur_word(s + done));
  *from = (struct murmur){h, done};
  if (n >= 8)
    last = (uint32_t)tail(s + n, n - done);
  else
    for (size_t i = n; i > done; --i) last = last << 8 | s[i - 1];
  return murmur_end(h, last, n);
}

/* The state of hashing terms with the same start. */
struct beginning {
  struct prefix prefix;
  struct murmur murmur;
};

#define BEGINNING ((struct beginning){PREFIX, {0, 0}})

static inline int add_hash(const struct text *t, struct work *w, uint32_t h, uint32_t mark) {
  if (w->count == w->found_room)
    if (!room((void **)&w->found, &w->found_room, w->count + 1, sizeof *w->found)) return FAILED;
  uint32_t negative = h >> 31, size = negative ? 0u - h : h, columns = (uint32_t)t->hashed;
  uint32_t column = columns & (columns - 1) ? size % columns : size & (columns - 1);
  w->found[w->count++] = (uint64_t)column << 32 | mark << 1 | (t->alternate_sign ? negative : 0);
  return DONE;
}

static inline int add_key(const struct text *t, struct work *w, struct key key, const uint8_t *s, size_t n,
                          uint32_t mark) {
  if (w->queued == QUEUE && look_up(t, w)) return FAILED;
  __builtin_prefetch(&t->slots[slot_of(key, t->bits)]);
  w->any_long |= n > SHORT;
  w->queue[w->queued++] = (struct waiting){key, s, n, mark << 1};
  return DONE;
}

static inline int term(const struct text *t, struct work *w, struct beginning *from, const uint8_t *s, size_t n,
                       uint32_t mark) {
  if (t->hashed) return add_hash(t, w, murmur(&from->murmur, s, n), mark);
  return add_key(t, w, key_of(&from->prefix, s, n), s, n, mark);
}

/* As `term`, for a term after which no bytes may be read. */
static inline int term_exactly(const struct text *t, struct work *w, const uint8_t *s, size_t n, uint32_t mark) {
  struct murmur from = {0, 0};
  if (t->hashed) return add_hash(t, w, murmur(&from, s, n), mark);
  return add_key(t, w, key_of_exactly(s, n), s, n, mark);
}

/* Return the number of bits of columns. */
static inline int bits_of(const struct text *t) {
  return t->terms > 1 ? 64 - __builtin_clzll((unsigned long long)t->terms - 1) : 1;
}

static void insertion_sort(uint64_t *a, size_t n) {
  for (size_t i = 1; i < n; ++i) {
    uint64_t one = a[i];
    size_t j = i;
    for (; j > 0 && a[j - 1] >> 32 > one >> 32; --j) a[j] = a[j - 1];
    a[j] = one;
  }
}

/* Sort keys by some of their bits, stably. */
static void distribute(const uint64_t *from, uint64_t *to, size_t n, int shift, int bits) {
  uint32_t places[1 << 11], sum = 0;
  size_t buckets = (size_t)1 << bits;
  memset(places, 0, buckets * sizeof *places);
  for (size_t i = 0; i < n; ++i) ++places[from[i] >> shift & (buckets - 1)];
  for (size_t i = 0; i < buckets; ++i) {
    uint32_t here = places[i];
    places[i] = sum;
    sum += here;
  }
  for (size_t i = 0; i < n; ++i) to[places[from[i] >> shift & (buckets - 1)]++] = from[i];
}

/* Sort a row's terms by column, stably. */
static int sort(const struct text *t, struct work *w) {
  size_t n = w->count;
  if (n <= 8) {
    insertion_sort(w->found, n);
    return DONE;
  }
  if (!room((void **)&w->sorted, &w->sorted_room, w->found_room, sizeof *w->sorted)) return FAILED;
  int bits = bits_of(t), most = n < 4096 ? 9 : 11, passes = (bits + most - 1) / most;
  int each = (bits + passes - 1) / passes, first = 0;
  if (n <= 64) {
    /* By their upper bits only: few remain out of order. */
    each = n <= 24 ? 5 : 6;
    if (each > bits) each = bits;
    first = bits - each, passes = 1;
  }
  for (int pass = 0; pass < passes; ++pass) {
    distribute(w->found, w->sorted, n, 32 + first + pass * each, each);
    uint64_t *found = w->found;
    size_t found_room = w->found_room;
    w->found = w->sorted, w->found_room = w->sorted_room;
    w->sorted = found, w->sorted_room = found_room;
  }
  if (first) insertion_sort(w->found, n);
  return DONE;
}

/* Convert a row's terms to entries, in the order of their columns. */
static int count(const struct text *t, struct work *w) {
  if (w->count >> 31 || sort(t, w)) return FAILED;
  if (!room((void **)&w->entry, &w->entry_room, w->count, sizeof *w->entry)) return FAILED;
  const uint64_t *a = w->found;
  struct entry *out = w->entry;
  for (size_t i = 0; i < w->count;) {
    uint32_t column = (uint32_t)(a[i] >> 32);
    double sum = 0.0;
    for (; i < w->count && (uint32_t)(a[i] >> 32) == column; ++i) {
      double value = w->values ? w->values[(uint32_t)a[i] >> 1] : 1.0;
      sum += a[i] & 1 ? -value : value;
    }
    *out++ = (struct entry){(int32_t)column, sum};
  }
  w->entries = (size_t)(out - w->entry);
  return DONE;
}

#endif
