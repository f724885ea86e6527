/* The end of a block of rows: its errors, and the results of its sums. */
#include <string.h>

#include "executor/internal.h"
#include "executor/rows.h"

void hbtvm_fail(struct run *run, int status, int64_t row, int64_t column) {
  while (atomic_flag_test_and_set_explicit(&run->placing, memory_order_acquire)) {
  }
  if (!atomic_load(&run->status) || row < run->place.row) {
    run->place = (struct place){row, column};
    atomic_store(&run->status, status);
  }
  atomic_flag_clear_explicit(&run->placing, memory_order_release);
}

int hbtvm_allowed(struct run *run, int64_t first, int64_t n) {
  const struct model *model = run->executor->model;
  if (!model->refuses) return 1;
  struct place place;
  int status = hbtvm_look(model->refuses, model->columns, run->type, run->rows + first * run->row_bytes, n, &place);
  if (status) hbtvm_fail(run, status, first + place.row, place.column);
  return !status;
}

void hbtvm_conclude(struct run *run, double *sums, int64_t first, int64_t n) {
  const struct model *model = run->executor->model;
  int64_t outputs = model->stages[model->count - 1].outputs;
  if (!run->bare) {
    if (model->divisor != 1.0) {
      for (int64_t i = 0; i < n * outputs; ++i) sums[i] /= model->divisor;
    }
    if (model->base) {
      double *row = sums;
      for (int64_t r = 0; r < n; ++r, row += outputs) {
        for (int64_t o = 0; o < outputs; ++o) row[o] += model->base[o];
      }
    }
  }
  char *out = run->out + first * run->out_bytes;
  if (!run->epilogue) {
    if ((char *)sums != out) memcpy(out, sums, (size_t)(n * run->out_bytes));
    return;
  }
  int64_t odd = hbtvm_finish(run->epilogue, sums, outputs, n, out);
  if (odd >= 0) hbtvm_fail(run, HBTVM_NO_LABEL, first + odd, 0);
}
