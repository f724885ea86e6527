/* XGBoost by its C interface: rows in place, and by way of a matrix of its own. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>

#include "peer.h"

typedef int create_booster(void *const *matrices, uint64_t count, void **booster);
typedef int load_model(void *booster, const char *path);
typedef int set_parameter(void *booster, const char *name, const char *value);
typedef int predict_dense(void *booster, const char *rows, const char *options, void *matrix, const uint64_t **shape,
                          uint64_t *axes, const float **results);
typedef int create_matrix(const char *rows, const char *options, void **matrix);
typedef int predict_matrix(void *booster, void *matrix, const char *options, const uint64_t **shape, uint64_t *axes,
                           const float **results);
typedef int free_matrix(void *matrix);
typedef const char *last_error(void);

static const char PREDICT[] = "{\"type\": 0, \"training\": false, \"iteration_begin\": 0, \"iteration_end\": 0,"
                              " \"strict_shape\": true, \"missing\": NaN, \"cache_id\": 0}";

static predict_dense *in_place;
static create_matrix *new_matrix;
static predict_matrix *of_matrix;
static free_matrix *delete_matrix;
static last_error *error_text;
static void *boosters[2]; /* for one thread, for two */
static const float *results;
static int64_t columns, outputs;

const char *peer_open(void) {
  void *library = dlopen(option("library"), RTLD_NOW);
  if (library == NULL) return dlerror();
  create_booster *create = (create_booster *)function_of(library, "XGBoosterCreate");
  load_model *load = (load_model *)function_of(library, "XGBoosterLoadModel");
  set_parameter *set = (set_parameter *)function_of(library, "XGBoosterSetParam");
  in_place = (predict_dense *)function_of(library, "XGBoosterPredictFromDense");
  new_matrix = (create_matrix *)function_of(library, "XGDMatrixCreateFromDense");
  of_matrix = (predict_matrix *)function_of(library, "XGBoosterPredictFromDMatrix");
  delete_matrix = (free_matrix *)function_of(library, "XGDMatrixFree");
  error_text = (last_error *)function_of(library, "XGBGetLastError");
  if (!create || !load || !set || !in_place || !new_matrix || !of_matrix || !delete_matrix || !error_text)
    return "the library lacks functions";
  columns = option_number("features");
  outputs = option_number("outputs");
  for (int i = 0; i < 2; i++)
    if (create(NULL, 0, &boosters[i]) != 0 || load(boosters[i], option("model")) != 0 ||
        set(boosters[i], "nthread", i == 0 ? "1" : "2") != 0)
      return error_text();
  return NULL;
}

const char *peer_way(int way, int64_t n) {
  int two = option_number("threads") == 2;
  switch (way) {
    case 0: return "PredictFromDense, 1 thread";
    case 1: return two ? "PredictFromDense, 2 threads" : NULL;
    case 2: return n > 1 ? "PredictFromDMatrix, 1 thread" : NULL;
    case 3: return n > 1 && two ? "PredictFromDMatrix, 2 threads" : NULL;
    default: return NULL;
  }
}

int peer_takes_double(void) { return 0; }

int64_t peer_outputs(void) { return outputs; }

const char *peer_prepare(int way, int64_t n) {
  (void)way, (void)n;
  return NULL;
}

const char *peer_predict(int way, const void *rows, int64_t n) {
  char text[160];
  snprintf(text, sizeof text,
           "{\"data\": [%" PRIuPTR ", true], \"shape\": [%" PRId64 ", %" PRId64 "], \"typestr\": \"<f4\", \"version\": 3}",
           (uintptr_t)rows, n, columns);
  const uint64_t *shape;
  uint64_t axes;
  void *booster = boosters[way % 2];
  if (way < 2) return in_place(booster, text, PREDICT, NULL, &shape, &axes, &results) == 0 ? NULL : error_text();
  void *matrix;
  const char *options = way == 2 ? "{\"missing\": NaN, \"nthread\": 1}" : "{\"missing\": NaN, \"nthread\": 2}";
  if (new_matrix(text, options, &matrix) != 0) return error_text();
  int failed = of_matrix(booster, matrix, PREDICT, &shape, &axes, &results);
  delete_matrix(matrix); /* the results belong to the booster */
  return failed ? error_text() : NULL;
}

double peer_result(int64_t i) { return (double)results[i]; }
