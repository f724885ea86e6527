/* What libraries for C add to the executor of recursive models: arguments that are checked, the layers behind, errors
 * with their place.
 *
 * `hbtvm export` generates the functions that users call, each of which calls one of these with constant data.
 */
#ifndef HBTVM_EXPORTED_RECURSIVE_H
#define HBTVM_EXPORTED_RECURSIVE_H

#include "exported.h"
#include "recursive.h"

/* What users' functions return: as `enum exported_code` below 20, as `enum recursive_status` from there on. */
enum { EXPORTED_RECURSIVE_CODES = 27 };

/* The generated header has the same structure by a name of its own. */
struct exported_place {
  int code;
  int64_t structure, node, input; /* -1 where there is none */
};

struct exported_recursive {
  const struct recursive_model *model;
  struct exported behind; /* the layers behind the readout; none of them: count is 0 */
};

struct opened_recursive {
  const struct exported_recursive *exported;
  struct recursive *recursive;
  struct opened behind;
};

/* Returns 0 where there is no memory; nothing is to be closed then. */
int exported_recursive_open(struct opened_recursive *opened, const struct exported_recursive *exported, int threads);
void exported_recursive_close(struct opened_recursive *opened);

/* Compute the readout of structures (`method` is null), or an output of the layers behind it. `results`: for how many
 * `out` has room; becomes their number, also where there are more. Returns a code; pointers may be null, which is told
 * as an error. */
int exported_recursive_run(const struct opened_recursive *opened, const struct method *method,
                           const struct recursive_batch *batch, void *out, int64_t *results, int threads,
                           struct exported_place *place);

/* The sentence of a code. */
const char *exported_recursive_message(int code);

#endif
