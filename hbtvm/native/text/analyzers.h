/* Conversion of texts to terms: words, characters, and n-grams of these. */
#ifndef HBTVM_TEXT_ANALYZERS_H
#define HBTVM_TEXT_ANALYZERS_H

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "text/characters.h"
#include "text/terms.h"

/* Add all n-grams of `shortest` to `longest` of the `count` parts of a text. Part i starts at s[start[i]], or at s[i]
 * without `start`; the `gap` bytes between two parts belong to the first. */
static inline int sequences_of(const struct text *t, struct work *w, const uint8_t *s, const size_t *start,
                               size_t count, size_t gap, size_t longest) {
  size_t shortest = (size_t)t->shortest;
  for (size_t i = 0; i + shortest <= count; ++i) {
    struct beginning from = BEGINNING;
    size_t first = start ? start[i] : i, most = longest < count - i ? longest : count - i;
    for (size_t n = shortest; n <= most; ++n) {
      size_t end = start ? start[i + n] : i + n;
      if (term(t, w, &from, s + first, end - first - gap, 0)) return FAILED;
    }
  }
  return DONE;
}

static int sequences(const struct text *t, struct work *w, const uint8_t *s, const size_t *start, size_t count,
                     size_t gap) {
  size_t longest = (size_t)t->longest;
  return start ? sequences_of(t, w, s, start, count, gap, longest)
               : sequences_of(t, w, s, NULL, count, 0, longest);
}

/* Return which of 64 bytes are in some ranges: bit i for byte i. */
#ifdef __SSE2__
static inline uint64_t in_ranges(const uint8_t *s, const uint8_t *ranges) {
  uint64_t bits = 0;
  __m128i found[4], bytes[4];
  for (int k = 0; k < 4; ++k) {
    bytes[k] = _mm_loadu_si128((const __m128i *)(s + 16 * k));
    found[k] = _mm_setzero_si128();
  }
  for (int i = 0; i < ranges[0]; ++i) {
    __m128i first = _mm_set1_epi8((char)ranges[1 + 2 * i]);
    __m128i most = _mm_set1_epi8((char)(ranges[2 + 2 * i] - ranges[1 + 2 * i]));
    for (int k = 0; k < 4; ++k) {
      __m128i above = _mm_sub_epi8(bytes[k], first);
      found[k] = _mm_or_si128(found[k], _mm_cmpeq_epi8(_mm_min_epu8(above, most), above));
    }
  }
  for (int k = 0; k < 4; ++k) bits |= (uint64_t)(uint32_t)_mm_movemask_epi8(found[k]) << 16 * k;
  return bits;
}
#else
static inline uint64_t in_ranges(const uint8_t *s, const uint8_t *ranges) {
  uint64_t bits = 0;
  for (int j = 0; j < 64; ++j)
    for (int i = 1; i < 1 + 2 * ranges[0]; i += 2)
      bits |= (uint64_t)((uint8_t)(s[j] - ranges[i]) <= (uint8_t)(ranges[i + 1] - ranges[i])) << j;
  return bits;
}
#endif

/* Mark the bytes of an ASCII text that are of a class; return the number of 64-bit words, or SIZE_MAX if memory is
 * short. */
static size_t mark(const struct text *t, struct work *w, size_t size, int class) {
  const uint8_t *s = w->text, *ascii = ascii_of(t), *ranges = class == SPACE ? t->space_ranges : t->token_ranges;
  size_t words = (size + 63) / 64;
  if (!room((void **)&w->bits, &w->bits_room, words, sizeof *w->bits)) return SIZE_MAX;
  for (size_t i = 0; i < words; ++i, s += 64) {
    size_t n = size - 64 * i < 64 ? size - 64 * i : 64;
    uint64_t bits = 0;
    if (ranges[0] > RANGES)
      for (size_t j = 0; j < n; ++j) bits |= (uint64_t)((ascii[s[j]] & class) != 0) << j;
    else
      bits = in_ranges(s, ranges);
    w->bits[i] = n < 64 ? bits & ((UINT64_C(1) << n) - 1) : bits;
  }
  return words;
}

/* Iterates over the starts and ends of a text's marked runs. */
struct runs {
  const uint64_t *bits;
  size_t words, word, size;
  uint64_t changes, carry;
};

static inline struct runs runs_of(const struct work *w, size_t words, size_t size) {
  return (struct runs){w->bits, words, (size_t)-1, size, 0, 0};
}

/* Return the next start or end of a run; the text's size after the last. */
static inline size_t next_change(struct runs *r) {
  while (!r->changes) {
    if (++r->word >= r->words) {
      r->word = r->words;
      return r->size;
    }
    uint64_t bits = r->bits[r->word];
    r->changes = bits ^ (bits << 1 | r->carry);
    r->carry = bits >> 63;
  }
  size_t at = 64 * r->word + (size_t)__builtin_ctzll(r->changes);
  r->changes &= r->changes - 1;
  return at;
}

/* Tokens to join to n-grams. */
struct tokens {
  size_t count, joined;
};

static inline int token(const struct text *t, struct work *w, struct tokens *have, const uint8_t *s, size_t n) {
  struct beginning from = BEGINNING;
  /* In a vocabulary of single tokens, stop words are found with the terms. */
  if (t->stop_words && (t->hashed || t->longest > 1) && find(t, key_of(&from.prefix, s, n), s, n) == STOP_WORD)
    return DONE;
  from = BEGINNING;
  if (t->longest == 1) return term(t, w, &from, s, n, 0);
  if (!room((void **)&w->joined, &w->joined_room, have->joined + n + 1 + PADDING, 1)) return FAILED;
  if (!room((void **)&w->start, &w->start_room, have->count + 2, sizeof *w->start)) return FAILED;
  w->start[have->count++] = have->joined;
  memcpy(w->joined + have->joined, s, n);
  have->joined += n;
  w->joined[have->joined++] = ' ';
  w->start[have->count] = have->joined;
  return DONE;
}

/* Add the words of an ASCII text. */
static int ascii_words(const struct text *t, struct work *w, size_t size, struct tokens *have) {
  const uint8_t *ascii = ascii_of(t);
  size_t words = mark(t, w, size, t->whole ? WORD : TOKEN);
  if (words == SIZE_MAX) return FAILED;
  struct runs runs = runs_of(w, words, size);
  for (;;) {
    size_t first = next_change(&runs);
    if (first == size) return DONE;
    size_t end = next_change(&runs);
    if ((int64_t)(end - first) < t->least) continue;
    if (t->whole && !t->plain) {
      int all = TOKEN;
      for (size_t i = first; i < end; ++i) all &= ascii[w->text[i]];
      if (!all) continue;
    }
    if (token(t, w, have, w->text + first, end - first)) return FAILED;
  }
}

static int other_words(const struct text *t, struct work *w, size_t size, struct tokens *have) {
  const uint8_t *s = w->text, *end = s + size, *ascii = ascii_of(t);
  int wanted = t->whole ? WORD : TOKEN;
  for (;;) {
    size_t taken = 0;
    while (s < end && !(class_at(t, ascii, s, end, &taken) & wanted)) s += taken;
    if (s == end) return DONE;
    const uint8_t *first = s;
    int all = TOKEN;
    int64_t length = 0;
    for (; s < end; s += taken, ++length) {
      int kind = class_at(t, ascii, s, end, &taken);
      if (!(kind & wanted)) break;
      all &= kind;
    }
    if (length < t->least || !all) continue;
    if (token(t, w, have, first, (size_t)(s - first))) return FAILED;
  }
}

static int words(const struct text *t, struct work *w, size_t size) {
  struct tokens have = {0, 0};
  if (w->ascii ? ascii_words(t, w, size, &have) : other_words(t, w, size, &have)) return FAILED;
  return have.count ? sequences(t, w, w->joined, w->start, have.count, 1) : DONE;
}

/* Record the starts of a text's characters. Return their number, or SIZE_MAX if memory is short. */
static size_t characters_of(struct work *w, const uint8_t *s, size_t size) {
  size_t count = 0;
  if (!room((void **)&w->start, &w->start_room, size + 1, sizeof *w->start)) return SIZE_MAX;
  for (size_t at = 0; at < size;) {
    size_t taken;
    decode(s + at, s + size, &taken);
    w->start[count++] = at;
    at += taken;
  }
  w->start[count] = size;
  return count;
}

/* Return whether an ASCII text has two consecutive spaces; also if memory is short. */
static int has_runs_of_spaces(const struct text *t, struct work *w, size_t size) {
  size_t words = mark(t, w, size, SPACE);
  if (words == SIZE_MAX) return 1;
  uint64_t carry = 0, any = 0;
  for (size_t i = 0; i < words; ++i) {
    any |= w->bits[i] & (w->bits[i] << 1 | carry);
    carry = w->bits[i] >> 63;
  }
  return any != 0;
}

/* Replace each run of several spaces by one space; return the new size. */
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
  if (!w->ascii || has_runs_of_spaces(t, w, size)) size = squeeze(t, w, size);
  if (w->ascii) return sequences(t, w, w->text, NULL, size, 0);
  size_t count = characters_of(w, w->text, size);
  return count == SIZE_MAX ? FAILED : sequences(t, w, w->text, w->start, count, 0);
}

/* Add the character n-grams of a word between two spaces. */
static int word_characters(const struct text *t, struct work *w, const uint8_t *word, size_t n) {
  size_t count = w->ascii ? n : characters_of(w, word, n);
  if (count == SIZE_MAX) return FAILED;
  if ((size_t)t->shortest < count) return sequences(t, w, word, w->ascii ? NULL : w->start, count, 0);
  /* A word that is too short counts once, whatever the lengths. */
  struct beginning from = BEGINNING;
  return term(t, w, &from, word, n, 0);
}

static int characters_in_words(const struct text *t, struct work *w, size_t size) {
  /* All words, each between its own two spaces. Their terms must stay in place until they are counted. */
  if (!room((void **)&w->joined, &w->joined_room, 2 * size + 2 + PADDING, 1)) return FAILED;
  const uint8_t *s = w->text, *end = s + size, *ascii = ascii_of(t);
  uint8_t *out = w->joined;
  while (s < end) {
    size_t taken;
    if (class_at(t, ascii, s, end, &taken) & SPACE) {
      s += taken;
      continue;
    }
    const uint8_t *first = s;
    while (s < end && !(class_at(t, ascii, s, end, &taken) & SPACE)) s += taken;
    size_t n = (size_t)(s - first) + 2;
    out[0] = out[n - 1] = ' ';
    memcpy(out + 1, first, n - 2);
    if (word_characters(t, w, out, n)) return FAILED;
    out += n;
  }
  return DONE;
}

#endif
