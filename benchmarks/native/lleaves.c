/* lleaves: the function in the object that it caches, linked into the program.
 *
 * The function works on one thread; as a C program would, two threads are had by OpenMP.
 */
#include <stdlib.h>

#include "peer.h"

extern void forest_root(double *rows, double *results, int32_t start, int32_t end);

static double *results;
static int64_t outputs;

const char *peer_open(void) {
  outputs = option_number("outputs");
  return NULL;
}

const char *peer_way(int way, int64_t n) {
  if (way == 0) return "forest_root";
  return way == 1 && n > 1 && option_number("threads") == 2 ? "forest_root, 2 threads" : NULL;
}

int peer_takes_double(void) { return 1; }

int64_t peer_outputs(void) { return outputs; }

const char *peer_prepare(int way, int64_t n) {
  (void)way;
  free(results);
  results = calloc((size_t)(n * outputs), sizeof *results);
  return results == NULL ? "no memory" : NULL;
}

const char *peer_predict(int way, const void *rows, int64_t n) {
  double *values = (double *)(uintptr_t)rows; /* it only reads them */
  if (way == 0) {
    forest_root(values, results, 0, (int32_t)n);
    return NULL;
  }
#pragma omp parallel for num_threads(2) schedule(static)
  for (int half = 0; half < 2; half++)
    forest_root(values, results, (int32_t)(half * n / 2), (int32_t)((half + 1) * n / 2));
  return NULL;
}

double peer_result(int64_t i) { return results[i]; }
