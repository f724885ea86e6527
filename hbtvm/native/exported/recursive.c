#include "exported/recursive.h"

#include <stdlib.h>

int exported_recursive_open(struct opened_recursive *opened, const struct exported_recursive *exported, int threads) {
  opened->exported = exported;
  opened->recursive = hbtvm_recursive_open(exported->model, threads);
  if (opened->recursive && exported_open(&opened->behind, &exported->behind, threads)) return 1;
  hbtvm_recursive_close(opened->recursive);
  return 0;
}

void exported_recursive_close(struct opened_recursive *opened) {
  hbtvm_recursive_close(opened->recursive);
  exported_close(&opened->behind);
}

/* Return whether the arrays that the executor reads are not null. */
static int is_complete(const struct recursive_model *model, const struct recursive_batch *batch) {
  if (!batch || batch->structures < 0 || batch->nodes < 0 || batch->edges < 0) return 0;
  if (!batch->starts || !batch->first || (batch->edges && !batch->child)) return 0;
  for (int64_t i = 0; batch->nodes && i < model->input_count; ++i) {
    if (!batch->inputs[i]) return 0;
  }
  return 1;
}

static int code_of(int status) {
  return status >= HBTVM_BAD_ARRAYS ? status : exported_fail_as(NULL, status, NULL, NULL);
}

/* Compute the readout, and the layers behind it. */
static int run_behind(const struct opened_recursive *opened, const struct method *method,
                      const struct recursive_batch *batch, void *out, int64_t *results, int threads,
                      struct recursive_place *place) {
  const struct recursive_model *model = opened->exported->model;
  int64_t most = batch->nodes > batch->structures ? batch->nodes : batch->structures;
  int64_t room = *results < most ? *results : most, width = model->rows * model->columns;
  if (room > INT64_MAX / 8 / width) return EXPORTED_MEMORY;
  float *rows = malloc((size_t)(room * width + 1) * sizeof *rows);
  if (!rows) return EXPORTED_MEMORY;
  *results = room;
  int code = code_of(hbtvm_recursive_run(opened->recursive, batch, rows, results, threads, place));
  if (!code) code = exported_run(&opened->behind, method, HBTVM_F32, rows, *results, out, threads, NULL);
  free(rows);
  return code;
}

int exported_recursive_run(const struct opened_recursive *opened, const struct method *method,
                           const struct recursive_batch *batch, void *out, int64_t *results, int threads,
                           struct exported_place *place) {
  struct recursive_place where = {-1, -1, -1};
  int code = EXPORTED_ARGUMENT;
  if (opened && results && *results >= 0 && threads >= 0 && (out || !*results) &&
      is_complete(opened->exported->model, batch)) {
    code = method ? run_behind(opened, method, batch, out, results, threads, &where)
                  : code_of(hbtvm_recursive_run(opened->recursive, batch, out, results, threads, &where));
  }
  if (place) *place = (struct exported_place){code, where.structure, where.node, where.input};
  return code;
}

static const char *const messages[EXPORTED_RECURSIVE_CODES - EXPORTED_CODES] = {
    "starts or first do not rise from 0 to the numbers of nodes and edges",
    "a node depends on itself",
    "a child of a node is not in its structure",
    "a node has more children than the model takes",
    "an index of a node is out of range",
    "there are more results than there is room for",
    "there are too many nodes or edges",
};

const char *exported_recursive_message(int code) {
  if (code < EXPORTED_CODES || code >= EXPORTED_RECURSIVE_CODES) return exported_message(code);
  return messages[code - EXPORTED_CODES];
}
