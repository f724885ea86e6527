/* Arrow batches as inputs, with results and errors. */
#include "arrow/arrow.h"
#include "exported/exported.h"

static int fail_at(struct exported_error *error, int status, const struct arrow_place *place) {
  int code = EXPORTED_KERNEL;
  if (status == HBTVM_NO_MEMORY) code = EXPORTED_MEMORY;
  if (status == HBTVM_BAD_ARGUMENT) code = EXPORTED_ARGUMENT;
  if (status == HBTVM_ARROW_INFINITY) code = EXPORTED_INFINITY;
  if (status == HBTVM_ARROW_INEXACT) code = EXPORTED_NOT_FLOAT32;
  if (status >= HBTVM_ARROW_MALFORMED && status <= HBTVM_ARROW_NULL) code = EXPORTED_BATCH + status - HBTVM_ARROW_MALFORMED;
  return exported_fail(error, code, place->row, place->column >= 0 ? place->column : place->given);
}

int exported_run_arrow(const struct opened *opened, const struct method *method, const struct front *front,
                       const int64_t *read, const struct ArrowSchema *schema, const struct ArrowArray *batch, void *out,
                       int threads, struct exported_error *error) {
  if (!opened || !schema || !batch || threads < 0 || (batch->length > 0 && !out)) {
    return exported_fail(error, EXPORTED_ARGUMENT, -1, -1);
  }
  struct arrow_place at = {-1, -1, -1};
  struct rows rows = {0};
  int64_t type;
  int status = hbtvm_read_arrow(front, schema, batch, &type, &rows, &at);
  if (status) return fail_at(error, status, &at);
  struct place place = {-1, -1};
  struct executor *executor = opened->executors[method->model];
  status = hbtvm_run(executor, method->epilogues[type], type, rows.values, rows.n, out, threads, &place);
  hbtvm_release_rows(&rows);
  return exported_fail_as(error, status, &place, read);
}
