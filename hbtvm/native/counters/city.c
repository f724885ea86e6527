/* CityHash64, version 1, of short and long texts; after Google's CityHash, and equal to `city_hash` of
 * `hbtvm.graph.columns.hashes`. */
#include <string.h>

#include "counters/counters.h"

#define K0 UINT64_C(0xC3A5C85C97CB3127)
#define K1 UINT64_C(0xB492B66FBE98F273)
#define K2 UINT64_C(0x9AE16A3B2F90404F)
#define K3 UINT64_C(0xC949D7C7509E6557)
#define PAIR UINT64_C(0x9DDFEA08EB382D69)

static uint64_t word(const uint8_t *s) {
  uint64_t result;
  memcpy(&result, s, sizeof result);
  return result;
}

static uint64_t half(const uint8_t *s) {
  uint32_t result;
  memcpy(&result, s, sizeof result);
  return result;
}

/* by: 1 to 63 */
static uint64_t rotated(uint64_t x, int by) { return x >> by | x << (64 - by); }

static uint64_t mixed(uint64_t x) { return x ^ x >> 47; }

static uint64_t paired(uint64_t u, uint64_t v) {
  uint64_t a = mixed((u ^ v) * PAIR);
  return mixed((v ^ a) * PAIR) * PAIR;
}

static uint64_t to_16(const uint8_t *s, uint64_t n) {
  if (n > 8) {
    uint64_t b = word(s + n - 8);
    return paired(word(s), rotated(b + n, (int)n)) ^ b;
  }
  if (n >= 4) return paired(n + (half(s) << 3), half(s + n - 4));
  if (!n) return K2;
  uint64_t y = s[0] + ((uint64_t)s[n >> 1] << 8), z = n + ((uint64_t)s[n - 1] << 2);
  return mixed(y * K2 ^ z * K3) * K2;
}

static uint64_t to_32(const uint8_t *s, uint64_t n) {
  uint64_t a = word(s) * K1, b = word(s + 8), c = word(s + n - 8) * K2, d = word(s + n - 16) * K0;
  return paired(rotated(a - b, 43) + rotated(c, 30) + d, a + rotated(b ^ K3, 20) - c + n);
}

struct pair {
  uint64_t first, second;
};

static struct pair half_of_64(uint64_t a, uint64_t z, uint64_t p, uint64_t q) {
  uint64_t b = rotated(a + z, 52), c = rotated(a, 37);
  a += p;
  c += rotated(a, 7);
  a += q;
  return (struct pair){a + z, b + rotated(a, 31) + c};
}

static uint64_t to_64(const uint8_t *s, uint64_t n) {
  const uint8_t *end = s + n;
  uint64_t a = word(s) + (n + word(end - 16)) * K0;
  struct pair v = half_of_64(a, word(s + 24), word(s + 8), word(s + 16));
  struct pair w = half_of_64(word(s + 16) + word(end - 32), word(end - 8), word(end - 24), word(end - 16));
  uint64_t r = mixed((v.first + w.second) * K2 + (w.first + v.second) * K0);
  return mixed(r * K0 + v.second) * K2;
}

/* Mix 32 bytes with two seeds. */
static struct pair weak(const uint8_t *s, uint64_t a, uint64_t b) {
  uint64_t w = word(s), x = word(s + 8), y = word(s + 16), z = word(s + 24);
  a += w;
  b = rotated(b + a + z, 21);
  uint64_t c = a;
  a += x + y;
  return (struct pair){a + z, b + rotated(a, 44) + c};
}

static uint64_t above_64(const uint8_t *s, uint64_t n) {
  const uint8_t *end = s + n;
  uint64_t x = word(s), y = word(end - 16) ^ K1, z = word(end - 56) ^ K0;
  struct pair v = weak(end - 64, n, y), w = weak(end - 32, n * K1, K0);
  z += mixed(v.second) * K1;
  x = rotated(z + x, 39) * K1;
  y = rotated(y, 33) * K1;
  for (uint64_t rounds = (n - 1) >> 6; rounds; --rounds, s += 64) {
    x = rotated(x + y + v.first + word(s + 16), 37) * K1 ^ w.second;
    y = rotated(y + v.second + word(s + 48), 42) * K1 ^ v.first;
    z = rotated(z ^ w.first, 33);
    v = weak(s, v.second * K1, x + w.first);
    w = weak(s + 32, z + w.second, y);
    uint64_t last = x;
    x = z;
    z = last;
  }
  return paired(paired(v.first, w.first) + mixed(y) * K1 + z, paired(v.second, w.second) + x);
}

static uint64_t hash(const uint8_t *s, uint64_t n) {
  return n <= 16 ? to_16(s, n) : n <= 32 ? to_32(s, n) : n <= 64 ? to_64(s, n) : above_64(s, n);
}

static int64_t offset(const void *offsets, int64_t wide, int64_t i) {
  return wide ? ((const int64_t *)offsets)[i] : ((const int32_t *)offsets)[i];
}

int64_t hbtvm_hash_texts(const uint8_t *bytes, int64_t size, const void *offsets, int64_t wide, int64_t n,
                         int32_t *out) {
  for (int64_t i = 0; i < n; ++i) {
    int64_t start = offset(offsets, wide, i), end = offset(offsets, wide, i + 1);
    if (start < 0 || end < start || end > size) return i;
    out[i] = (int32_t)(uint32_t)hash(bytes + start, (uint64_t)(end - start));
  }
  return -1;
}
