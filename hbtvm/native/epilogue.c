#include "epilogue.h"

int64_t hbtvm_finish(const struct epilogue *e, double *raw, int64_t stride, int64_t n, void *out) {
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t i = e->first; i < e->last; ++i) {
      double x = raw[r * stride + i];
      int64_t at = r * (e->last - e->first) + i - e->first;
      if (e->type == HBTVM_F32) {
        ((float *)out)[at] = (float)x;
      } else if (e->type == HBTVM_I64) {
        ((int64_t *)out)[at] = (int64_t)x;
      } else {
        ((double *)out)[at] = x;
      }
    }
  }
  return -1;
}
