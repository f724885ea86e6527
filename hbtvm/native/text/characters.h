/* UTF-8 characters: their classes, and the normalisation of texts. */
#ifndef HBTVM_TEXT_CHARACTERS_H
#define HBTVM_TEXT_CHARACTERS_H

#include "text/types.h"

/* Return the code point at `s`, and its length in bytes: 1 if invalid. Lone surrogates are code points. */
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

/* Return the class of the character at `s`, and its length in bytes. `ascii` is the page of the first characters. */
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

/* Write the normalised text to `w->text`, with PADDING after it and room for a BLOCK. */
static int normalize(const struct text *t, struct work *w, const uint8_t *s, size_t n, size_t *size) {
  if (!room((void **)&w->text, &w->text_room, n + BLOCK + 4, 1)) return FAILED;
  uint8_t any = 0;
  for (size_t i = 0; i < n; ++i) any |= s[i];
  w->ascii = any < 0x80;
  if (w->ascii || !t->map_page) {
    uint8_t *out = w->text;
    if (t->lowercase && w->ascii)
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
      /* Room for the rest of the text is already allocated. */
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
    if (!room((void **)&w->text, &w->text_room, at + 4 * count + (size_t)(end - s) + BLOCK, 1)) return FAILED;
    for (size_t i = 0; i < count; ++i) at += encode(from[i], w->text + at);
  }
  *size = at;
  memset(w->text + at, 0, PADDING);
  return DONE;
}

#endif
