/* hbtvm: the library that `hbtvm export` writes, by the name of "model".
 *
 * Compiled with -DPREDICT=... for its function that predicts, and -DRESULT=... for the type of results.
 */
#include "model.h"

#include <stdlib.h>

#include "peer.h"

static model_model *model;
static RESULT *results;
static int64_t outputs;

const char *peer_open(void) {
  outputs = option_number("outputs");
  model = model_open((int)option_number("threads"));
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
  int code = PREDICT(model, rows, n, results, 0, NULL);
  return code == 0 ? NULL : model_message(code);
}

double peer_result(int64_t i) { return (double)results[i]; }
