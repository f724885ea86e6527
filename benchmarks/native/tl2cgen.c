/* tl2cgen: the function `predict` of the C code that it writes, compiled as it compiles it (gcc -O3).
 *
 * The function takes a row of unions of a value and the int -1 for missing ones; without missing values those are the
 * values' own bits. It works on one thread; as a C program would, two threads are had by OpenMP.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

typedef int32_t tell_number(void);
typedef void tell_numbers(int32_t *numbers);
typedef const char *tell_type(void);
typedef void predict_row(void *row, int margin, void *results);

static predict_row *predict;
static void *results;
static int64_t columns, outputs;
static size_t row_bytes, result_bytes; /* of a row, and of its results */
static int rows_double, results_double;

static int is_double(tell_type *type) { return strcmp(type(), "float64") == 0; }

const char *peer_open(void) {
  void *library = dlopen(option("model"), RTLD_NOW);
  if (library == NULL) return dlerror();
  tell_number *targets = (tell_number *)function_of(library, "get_num_target");
  tell_numbers *classes = (tell_numbers *)function_of(library, "get_num_class");
  tell_type *rows_type = (tell_type *)function_of(library, "get_threshold_type");
  tell_type *results_type = (tell_type *)function_of(library, "get_leaf_output_type");
  predict = (predict_row *)function_of(library, "predict");
  if (!targets || !classes || !rows_type || !results_type || !predict) return "the library lacks functions";
  if (targets() != 1) return "models of several targets are not measured";
  int32_t count;
  classes(&count);
  outputs = count;
  columns = option_number("features");
  rows_double = is_double(rows_type);
  results_double = is_double(results_type);
  row_bytes = (size_t)columns * (rows_double ? sizeof(double) : sizeof(float));
  result_bytes = (size_t)outputs * (results_double ? sizeof(double) : sizeof(float));
  return NULL;
}

const char *peer_way(int way, int64_t n) {
  if (way == 0) return "predict";
  return way == 1 && n > 1 && option_number("threads") == 2 ? "predict, 2 threads" : NULL;
}

int peer_takes_double(void) { return rows_double; }

int64_t peer_outputs(void) { return outputs; }

const char *peer_prepare(int way, int64_t n) {
  (void)way;
  free(results);
  results = malloc((size_t)n * result_bytes);
  return results == NULL ? "no memory" : NULL;
}

static void span(const char *rows, int64_t start, int64_t end) {
  for (int64_t i = start; i < end; i++)
    predict((void *)(uintptr_t)(rows + (size_t)i * row_bytes), 0, (char *)results + (size_t)i * result_bytes);
}

const char *peer_predict(int way, const void *rows, int64_t n) {
  memset(results, 0, (size_t)n * result_bytes); /* `predict` adds to it */
  if (way == 0) {
    span(rows, 0, n);
    return NULL;
  }
#pragma omp parallel for num_threads(2) schedule(static)
  for (int half = 0; half < 2; half++) span(rows, half * n / 2, (half + 1) * n / 2);
  return NULL;
}

double peer_result(int64_t i) { return results_double ? ((double *)results)[i] : (double)((float *)results)[i]; }
