/* Properties of whole columns, and numbers for which C has no type. */
#include "arrow/values.h"

int has_nulls(const struct column *c) {
  if (c->type != NULLS && !c->valid && !c->batch_valid) return 0;
  for (int64_t i = 0; i < c->n; ++i)
    if (is_null(c, i)) return 1;
  return 0;
}

float half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31, fraction = half & 1023u, bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | fraction << 13;
  } else if (exponent) {
    bits = sign | (exponent + 112) << 23 | fraction << 13;
  } else {
    float x = (float)fraction / 16777216.0f; /* 2^24 */
    return sign ? -x : x;
  }
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
