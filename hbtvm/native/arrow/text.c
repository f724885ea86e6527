/* Text feeds: columns that text.c computes from each row's text. */
#include "arrow/internal.h"

/* From text.c. */
int64_t hbtvm_text_one(const struct text *t, const uint8_t *bytes, int64_t size, double *out);

#define NEEDS_CONTEXT 1

static int within(const uint32_t *ranges, int64_t count, uint32_t point) {
  int64_t low = 0, high = count;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (ranges[2 * middle + 1] < point)
      low = middle + 1;
    else
      high = middle;
  }
  return low < count && ranges[2 * low] <= point;
}

/* Return the code point at `s`, and its length in bytes (1 for invalid UTF-8). */
static uint32_t decoded(const uint8_t *s, int64_t size, int64_t *bytes) {
  static const uint8_t first[] = {0x7f, 0x1f, 0x0f, 0x07};
  int more = *s < 0x80 ? 0 : *s < 0xc2 ? -1 : *s < 0xe0 ? 1 : *s < 0xf0 ? 2 : *s < 0xf5 ? 3 : -1;
  *bytes = 1;
  if (more < 0 || more >= size) return 0xfffd;
  uint32_t point = *s & first[more];
  for (int i = 1; i <= more; ++i) {
    if (s[i] >> 6 != 2) return 0xfffd;
    point = point << 6 | (s[i] & 0x3fu);
  }
  *bytes = more + 1;
  return point;
}

/* Write lower-case letters for Greek capital sigmas, with final forms at the ends of words, as Unicode defines:
 * ignoring some characters, a sigma is final if the previous character is cased and the next is not. */
static void lower_sigmas(const struct texts *t, uint8_t *s, int64_t size) {
  int before = 0; /* whether the last character that is not ignored is cased */
  for (int64_t i = 0, bytes; i < size; i += bytes) {
    uint32_t point = decoded(s + i, size - i, &bytes);
    int sigma = point == 0x3a3, after = 0;
    for (int64_t j = i + bytes, next; sigma && j < size; j += next) {
      uint32_t other = decoded(s + j, size - j, &next);
      if (within(t->ignored, t->ignored_ranges, other)) continue;
      after = within(t->cased, t->cased_ranges, other);
      break;
    }
    if (!within(t->ignored, t->ignored_ranges, point)) {
      int final = before && !after;
      before = within(t->cased, t->cased_ranges, point);
      if (sigma) {
        s[i] = 0xcf;
        s[i + 1] = final ? 0x82 : 0x83;
      }
    }
  }
}

static int in_context(const struct texts *t, struct value v, double *out) {
  uint8_t *copy = malloc((size_t)v.size + 1);
  if (!copy) return HBTVM_NO_MEMORY;
  memcpy(copy, v.text, (size_t)v.size);
  lower_sigmas(t, copy, v.size);
  int64_t done = hbtvm_text_one(t->text, copy, v.size, out);
  free(copy);
  return done ? HBTVM_NO_MEMORY : HBTVM_OK;
}

int read_texts(struct reading *r, const struct texts *t, double *out) {
  static const uint8_t nothing[1] = {0};
  const struct column *c = &r->column[t->column];
  if (c->type != NULLS && c->type < TEXTS) return fail(r, HBTVM_ARROW_NOT_A_TEXT, t->column, -1);
  for (int64_t i = 0; i < c->n; ++i) {
    struct value v = value_of(c, i);
    if (v.kind != HBTVM_TEXT) return fail(r, HBTVM_ARROW_NOT_A_TEXT, t->column, i);
    if (!v.size) v.text = nothing;
    int64_t done = hbtvm_text_one(t->text, v.text, v.size, out + i * t->width);
    int status = done == NEEDS_CONTEXT ? in_context(t, v, out + i * t->width) : done ? HBTVM_NO_MEMORY : HBTVM_OK;
    if (status) return status;
  }
  return HBTVM_OK;
}
