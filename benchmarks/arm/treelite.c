/* The C code that tl2cgen writes, linked into the program: its function takes a row of unions of a value and an int. */
#include <stdlib.h>
#include <string.h>

#include "../native/peer.h"

extern void predict(double *row, int margin, double *results);

static double *results;
static int64_t columns;

const char *peer_open(void) {
  columns = option_number("features");
  return NULL;
}

const char *peer_way(int way, int64_t n) { return way == 0 && n > 0 ? "predict" : NULL; }

int peer_takes_double(void) { return 1; }

int64_t peer_outputs(void) { return 1; }

const char *peer_prepare(int way, int64_t n) {
  (void)way;
  results = malloc((size_t)n * sizeof *results);
  return results == NULL ? "no memory" : NULL;
}

const char *peer_predict(int way, const void *rows, int64_t n) {
  (void)way;
  memset(results, 0, (size_t)n * sizeof *results); /* `predict` adds to it */
  for (int64_t i = 0; i < n; i++) predict((double *)(uintptr_t)rows + i * columns, 0, results + i);
  return NULL;
}

double peer_result(int64_t i) { return results[i]; }
