#include "exported/exported.h"

#include <math.h>
#include <stdlib.h>

int exported_open(struct opened *opened, const struct exported *exported, int threads) {
  opened->exported = exported;
  for (int i = 0; i < EXPORTED_MODELS; ++i) opened->executors[i] = NULL;
  for (int64_t i = 0; i < exported->count; ++i) {
    opened->executors[i] = hbtvm_open(exported->models[i], threads);
    if (!opened->executors[i]) {
      exported_close(opened);
      return 0;
    }
  }
  return 1;
}

void exported_close(struct opened *opened) {
  for (int i = 0; i < EXPORTED_MODELS; ++i) hbtvm_close(opened->executors[i]);
}

int exported_fail(struct exported_error *error, int code, int64_t row, int64_t column) {
  if (error) {
    error->code = code;
    error->row = row;
    error->column = column;
  }
  return code;
}

int exported_fail_as(struct exported_error *error, int status, const struct place *place, const int64_t *read) {
  switch (status) {
    case HBTVM_OK: return exported_fail(error, EXPORTED_OK, -1, -1);
    case HBTVM_NO_MEMORY: return exported_fail(error, EXPORTED_MEMORY, -1, -1);
    case HBTVM_REFUSED_NAN:
    case HBTVM_REFUSED_INFINITY: {
      int code = status == HBTVM_REFUSED_NAN ? EXPORTED_NAN : EXPORTED_INFINITY;
      return exported_fail(error, code, place->row, read ? read[place->column] : place->column);
    }
    case HBTVM_NO_LABEL: return exported_fail(error, EXPORTED_NO_LABEL, place->row, -1);
    case HBTVM_BAD_ARGUMENT: return exported_fail(error, EXPORTED_ARGUMENT, -1, -1);
    default: return exported_fail(error, EXPORTED_KERNEL, -1, -1);
  }
}

static int64_t item_bytes(int64_t type) { return type == HBTVM_F32 ? 4 : 8; }

/* Rows that need no more memory than this are converted on the stack. */
union few {
  _Alignas(HBTVM_ALIGNMENT) float narrow[1024];
  double wide[512];
};

/* Convert a row to the model's columns; return the first value that the type does not hold, or -1. */
static int64_t convert_row(const struct row_input *input, const struct conversion *how, int64_t type, int64_t columns,
                           const char *row, char *to) {
  int single = how->through == HBTVM_F32;
  int64_t refused = -1;
  for (int64_t i = 0; i < columns; ++i) {
    int64_t column = input->read ? input->read[i] : i;
    double x = type == HBTVM_F32 ? (double)((const float *)(const void *)row)[column]
                                 : ((const double *)(const void *)row)[column];
    float rounded = (float)x;
    if (single && how->exact && refused < 0 && (double)rounded != x && x == x) refused = column;
    if (single) x = (double)rounded;
    if (input->missing && rounded == *input->missing) x = (double)NAN;
    if (how->to == HBTVM_F32) {
      ((float *)(void *)to)[i] = (float)x;
    } else {
      ((double *)(void *)to)[i] = x;
    }
  }
  return refused;
}

/* Convert rows to the model's columns; return whether the type holds all values, else set `place` to the first that it
 * does not hold. */
static int convert(const struct row_input *input, const struct conversion *how, int64_t type, int64_t columns,
                   const char *rows, int64_t n, char *to, struct place *place) {
  int plain = !input->read && !input->missing && !how->exact;
  /* As trees of most libraries read doubles. */
  if (plain && type == HBTVM_F64 && how->to == HBTVM_F32) {
    const double *x = (const double *)(const void *)rows;
    float *y = (float *)(void *)to;
    for (int64_t i = 0; i < n * columns; ++i) y[i] = (float)x[i];
    return 1;
  }
  int64_t row_bytes = input->columns * item_bytes(type), to_bytes = columns * item_bytes(how->to);
  for (int64_t i = 0; i < n; ++i) {
    place->column = convert_row(input, how, type, columns, rows + i * row_bytes, to + i * to_bytes);
    place->row = i;
    if (place->column >= 0) return 0;
  }
  return 1;
}

static int is_ready(const struct row_input *input, const struct conversion *how, int64_t type) {
  return how->through == type && how->to == type && !input->read && !input->missing;
}

int exported_run(const struct opened *opened, const struct method *method, int64_t type, const void *rows, int64_t n,
                 void *out, int threads, struct exported_error *error) {
  if (!opened || n < 0 || threads < 0 || (n && (!rows || !out))) {
    return exported_fail(error, EXPORTED_ARGUMENT, -1, -1);
  }
  const struct exported *exported = opened->exported;
  const struct row_input *input = &exported->inputs[method->model];
  const struct conversion *how = &input->conversions[type];
  struct executor *executor = opened->executors[method->model];
  struct place place = {-1, -1};
  if (is_ready(input, how, type)) {
    int status = hbtvm_run(executor, method->epilogues[type], type, rows, n, out, threads, &place);
    return exported_fail_as(error, status, &place, NULL);
  }
  int64_t columns = exported->models[method->model]->columns, row_bytes = columns * item_bytes(how->to);
  if (n > INT64_MAX / 2 / row_bytes) return exported_fail(error, EXPORTED_MEMORY, -1, -1);
  union few few;
  size_t bytes = (size_t)(n * row_bytes);
  char *more = bytes > sizeof few ? malloc(bytes) : NULL, *converted = more ? more : (char *)&few;
  if (bytes > sizeof few && !more) return exported_fail(error, EXPORTED_MEMORY, -1, -1);
  int code;
  if (convert(input, how, type, columns, rows, n, converted, &place)) {
    int status = hbtvm_run(executor, method->epilogues[type], how->to, converted, n, out, threads, &place);
    code = exported_fail_as(error, status, &place, input->read);
  } else {
    code = exported_fail(error, EXPORTED_NOT_FLOAT32, place.row, place.column);
  }
  free(more);
  return code;
}

static const char *const messages[EXPORTED_CODES] = {
    "no error",
    "an argument is wrong: a null pointer, or a number below 0",
    "there is not enough memory",
    "a value is NaN in a column that accepts no missing values",
    "a value is infinite, or too large for the type that the model computes in",
    "a row has no label: no training row is near it, or a value was not in the training data",
    "the model was compiled for float32 rows, and float32 does not hold a value",
    "a kernel refused its arguments, which is a bug of its compiler",
    "the batch is not an Arrow record batch, or is damaged",
    "the batch has more or fewer columns than the model",
    "the batch lacks a column",
    "the batch has a column that was not in the training data",
    "the batch has a column twice",
    "the batch has its columns in another order than in training",
    "a column has an unsupported type",
    "a value is a text where a number is expected",
    "a value is not a text where a text is expected",
    "a column holds numbers where training had categories or texts",
    "a category was not in the training data",
    "a value is missing in a column that had none missing in training",
};

const char *exported_message(int code) {
  return code >= 0 && code < EXPORTED_CODES ? messages[code] : "no such error code";
}

/* Kernels call this before they return a status for wrong arguments; the details are dropped. */
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count);
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  (void)kind, (void)parts, (void)count;
}
