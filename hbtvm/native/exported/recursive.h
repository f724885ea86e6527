/* The part of exported recursive models beyond the executor: checks of arguments, further layers, errors with their
 * place.
 *
 * `hbtvm export` generates the public functions, each of which calls one of these with constant data.
 */
#ifndef HBTVM_EXPORTED_RECURSIVE_H
#define HBTVM_EXPORTED_RECURSIVE_H

#include "exported/exported.h"
#include "recursive/recursive.h"

/* Results of public functions: as `enum exported_code` below 20, then as `enum recursive_status`. */
enum { EXPORTED_RECURSIVE_CODES = 27 };

/* The generated header has the same structure under another name. */
struct exported_place {
  int code;
  int64_t structure, node, input; /* -1 if none */
};

struct exported_recursive {
  const struct recursive_model *model;
  struct exported behind; /* the layers after the readout; count is 0 without any */
};

struct opened_recursive {
  const struct exported_recursive *exported;
  struct recursive *recursive;
  struct opened behind;
};

/* Return 0 if memory is short; nothing needs closing then. */
int exported_recursive_open(struct opened_recursive *opened, const struct exported_recursive *exported, int threads);
void exported_recursive_close(struct opened_recursive *opened);

/* Compute the readout of structures (`method` is null), or an output of the layers after it. `results`: the number of
 * results for which `out` has room; set to the actual number, even if it is larger. Returns a code; null pointers are
 * reported as errors. */
int exported_recursive_run(const struct opened_recursive *opened, const struct method *method,
                           const struct recursive_batch *batch, void *out, int64_t *results, int threads,
                           struct exported_place *place);

/* Return the message of a code. */
const char *exported_recursive_message(int code);

#endif
