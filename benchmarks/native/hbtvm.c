/* hbtvm: the library that `hbtvm export` writes.
 *
 * Compiled with -DNAME=... and -DHEADER="..." of that library, and -DPREDICT=... for the function that predicts.
 */
#include HEADER

#include <stdlib.h>

#include "peer.h"

#define JOINED(name, rest) name##_##rest
#define JOIN(name, rest) JOINED(name, rest)
#define FUNCTION(rest) JOIN(NAME, rest)

static FUNCTION(model) *model;
static double *results;
static int64_t outputs;

const char *peer_open(void) {
  outputs = option_number("outputs");
  model = FUNCTION(open)((int)option_number("threads"));
  return model == NULL ? "it cannot be opened" : NULL;
}

const char *peer_way(int way, int64_t n) {
  (void)n;
  return way == 0 ? "predict" : NULL; /* it decides itself how many threads to use */
}

int peer_takes_double(void) { return 0; }

int64_t peer_outputs(void) { return outputs; }

const char *peer_prepare(int way, int64_t n) {
  (void)way;
  free(results);
  results = malloc((size_t)(n * outputs) * sizeof *results);
  return results == NULL ? "no memory" : NULL;
}

const char *peer_predict(int way, const void *rows, int64_t n) {
  (void)way;
  return FUNCTION(PREDICT)(model, rows, n, results) == 0 ? NULL : "predict failed";
}

double peer_result(int64_t i) { return results[i]; }
