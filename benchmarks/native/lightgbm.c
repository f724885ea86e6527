/* LightGBM by its C interface: the fast call for single rows, and the call for matrices. */
#include <dlfcn.h>
#include <stdlib.h>

#include "peer.h"

enum { FLOAT32 = 0, NORMAL = 0 };

typedef int create_from_file(const char *path, int *iterations, void **booster);
typedef int number_of_classes(void *booster, int *classes);
typedef int fast_init(void *booster, int kind, int first, int iterations, int type, int32_t columns, const char *parameters,
                      void **fast);
typedef int fast_predict(void *fast, const void *row, int64_t *count, double *results);
typedef int matrix_predict(void *booster, const void *rows, int type, int32_t count, int32_t columns, int row_major, int kind,
                           int first, int iterations, const char *parameters, int64_t *results_count, double *results);
typedef const char *last_error(void);

static fast_predict *predict_row;
static matrix_predict *predict_matrix;
static last_error *error_text;
static void *booster, *fast;
static double *results;
static int32_t columns;
static int classes;
static const char *const threads_of_way[] = {"num_threads=1", "num_threads=1", "num_threads=2"};

const char *peer_open(void) {
  void *library = dlopen(option("library"), RTLD_NOW);
  if (library == NULL) return dlerror();
  create_from_file *create = (create_from_file *)function_of(library, "LGBM_BoosterCreateFromModelfile");
  number_of_classes *count = (number_of_classes *)function_of(library, "LGBM_BoosterGetNumClasses");
  fast_init *start = (fast_init *)function_of(library, "LGBM_BoosterPredictForMatSingleRowFastInit");
  predict_row = (fast_predict *)function_of(library, "LGBM_BoosterPredictForMatSingleRowFast");
  predict_matrix = (matrix_predict *)function_of(library, "LGBM_BoosterPredictForMat");
  error_text = (last_error *)function_of(library, "LGBM_GetLastError");
  if (!create || !count || !start || !predict_row || !predict_matrix || !error_text) return "the library lacks functions";
  columns = (int32_t)option_number("features");
  int iterations;
  if (create(option("model"), &iterations, &booster) != 0 || count(booster, &classes) != 0 ||
      start(booster, NORMAL, 0, -1, FLOAT32, columns, "num_threads=1", &fast) != 0)
    return error_text();
  return NULL;
}

const char *peer_way(int way, int64_t n) {
  switch (way) {
    case 0: return n <= 100 ? "PredictForMatSingleRowFast" : NULL;
    case 1: return "PredictForMat, 1 thread";
    case 2: return option_number("threads") == 2 ? "PredictForMat, 2 threads" : NULL;
    default: return NULL;
  }
}

int peer_takes_double(void) { return 0; }

int64_t peer_outputs(void) { return classes; }

const char *peer_prepare(int way, int64_t n) {
  (void)way;
  free(results);
  results = malloc((size_t)(n * classes) * sizeof *results);
  return results == NULL ? "no memory" : NULL;
}

const char *peer_predict(int way, const void *rows, int64_t n) {
  int64_t count;
  if (way == 0) {
    for (int64_t i = 0; i < n; i++)
      if (predict_row(fast, (const float *)rows + i * columns, &count, results + i * classes) != 0) return error_text();
    return NULL;
  }
  int failed = predict_matrix(booster, rows, FLOAT32, (int32_t)n, columns, 1, NORMAL, 0, -1, threads_of_way[way], &count,
                              results);
  return failed ? error_text() : NULL;
}

double peer_result(int64_t i) { return results[i]; }
