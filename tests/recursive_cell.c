/* Kernels of a small recursive cell, h = tanh(sum of the children's h + word + vector), m = most of the children's m
 * and the word's number, as plain loops that are called as TVM's kernels are. The sum over children goes the other way
 * round in tails, so that their results differ in the last bits, as those of compiled kernels may. */
#include <math.h>
#include <stdint.h>
#include <string.h>

struct tensor {
  void *data;
  int32_t device, id, axes;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t offset;
};

struct value {
  int32_t type, padding;
  struct tensor *tensor;
};

#define T(i) (args[i].tensor)
#define FLOATS(i) ((float *)T(i)->data)
#define NUMBERS(i) ((int32_t *)T(i)->data)
#define WRONG(condition) \
  if (condition) return -1

static int is_aligned(const struct tensor *t) { return (uintptr_t)t->data % 64 == 0; }

static int looks_right(const struct value *args, int32_t count, int32_t expected) {
  if (count != expected) return 0;
  for (int i = 0; i < count; ++i) {
    if (args[i].type != 7 || !is_aligned(T(i)) || T(i)->device != 1 || T(i)->strides || T(i)->offset) return 0;
  }
  return 1;
}

/* Outputs [from, to) of node n. */
static void node(const float *sum, int32_t word, const float *emb, int64_t width, const float *vector, float *out,
                 int64_t from, int64_t to) {
  for (int64_t i = from; i < to; ++i) {
    float x = sum ? sum[i] : 0;
    if (word >= 0) x += emb[word * width + i];
    out[i] = tanhf(x + vector[i]);
  }
}

/* number [T, R], vector [T, R, W], emb [V, S], out [T, R, S] */
int __tvm_ffi_leaf(void *self, const struct value *args, int32_t count, void *result) {
  WRONG(!looks_right(args, count, 4) || T(0)->axes != 2 || T(1)->axes != 3 || T(3)->axes != 3);
  int64_t n = T(0)->shape[0] * T(0)->shape[1], width = T(3)->shape[2];
  for (int64_t i = 0; i < n; ++i) {
    node(0, NUMBERS(0)[i], FLOATS(2), width, FLOATS(1) + i * width, FLOATS(3) + i * width, 0, width);
  }
  return 0;
}

/* state [rows, S], child [T, R, C], sum [T, R, S] */
static int sums(const struct value *args, int64_t first, int64_t step) {
  int64_t places = T(1)->shape[2], n = T(1)->shape[0] * T(1)->shape[1], width = T(0)->shape[1];
  for (int64_t i = 0; i < n; ++i) {
    float *sum = FLOATS(2) + i * width;
    memset(sum, 0, (size_t)width * sizeof *sum);
    for (int64_t c = 0; c < places; ++c) {
      int32_t child = NUMBERS(1)[i * places + (first < 0 ? places - 1 - c : c) * step];
      if (child >= T(0)->shape[0]) return -1;
      for (int64_t k = 0; k < width; ++k) sum[k] += FLOATS(0)[child * width + k];
    }
  }
  return 0;
}

int __tvm_ffi_gather(void *self, const struct value *args, int32_t count, void *result) {
  WRONG(!looks_right(args, count, 3) || T(1)->axes != 3 || T(2)->axes != 3);
  return sums(args, 0, 1);
}

int __tvm_ffi_gather_tail(void *self, const struct value *args, int32_t count, void *result) {
  WRONG(!looks_right(args, count, 3) || T(1)->axes != 3 || T(2)->axes != 3);
  return sums(args, -1, 1);
}

/* sum [T, R, S], number [T, R], vector [T, R, S], emb [V, S], span [2], out [T, R, S] */
int __tvm_ffi_cell(void *self, const struct value *args, int32_t count, void *result) {
  WRONG(!looks_right(args, count, 6) || T(4)->axes != 1 || T(4)->shape[0] != 2);
  int64_t n = T(1)->shape[0] * T(1)->shape[1], width = T(5)->shape[2];
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = i * width;
    node(FLOATS(0) + at, NUMBERS(1)[i], FLOATS(3), width, FLOATS(2) + at, FLOATS(5) + at, 16 * NUMBERS(4)[0],
         16 * NUMBERS(4)[1]);
  }
  return 0;
}

/* All at once: state, child, number, vector, emb, out. */
int __tvm_ffi_whole(void *self, const struct value *args, int32_t count, void *result) {
  WRONG(!looks_right(args, count, 6) || T(0)->axes != 2 || T(1)->axes != 3);
  int64_t places = T(1)->shape[2], n = T(1)->shape[0] * T(1)->shape[1], width = T(0)->shape[1];
  for (int64_t i = 0; i < n; ++i) {
    float sum[1024];
    memset(sum, 0, sizeof sum);
    for (int64_t c = 0; c < places; ++c) {
      const float *from = FLOATS(0) + NUMBERS(1)[i * places + c] * width;
      for (int64_t k = 0; k < width; ++k) sum[k] += from[k];
    }
    node(sum, NUMBERS(2)[i], FLOATS(4), width, FLOATS(3) + i * width, FLOATS(5) + i * width, 0, width);
  }
  return 0;
}

int __tvm_ffi_fails(void *self, const struct value *args, int32_t count, void *result) {
  return count ? T(0)->shape[0] > 0 : 0;
}
