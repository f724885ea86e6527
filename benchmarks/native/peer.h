/* What a measuring program (driver.c) asks of a library, which one file adapts.
 *
 * Functions that can fail return null, or a text that says why.
 */
#ifndef BENCHMARKS_NATIVE_PEER_H
#define BENCHMARKS_NATIVE_PEER_H

#include <stdint.h>

/* The value of an argument NAME=VALUE of the program; it ends if there is none. */
const char *option(const char *name);
int64_t option_number(const char *name);

/* A function of a library that was opened by dlopen, to be cast to its type; null if it has none. */
typedef void any_function(void);
any_function *function_of(void *library, const char *name);

/* Load the model. */
const char *peer_open(void);

/* Ways to predict, of which the fastest is measured. Null where there is no such way for calls of n rows. */
const char *peer_way(int way, int64_t n);

enum { PEER_WAYS = 4 };

/* Whether rows are to be of float64, else float32; known once the model is loaded. */
int peer_takes_double(void);

/* Results of a row; known once the model is loaded. */
int64_t peer_outputs(void);

/* Make room for the results of calls of n rows. */
const char *peer_prepare(int way, int64_t n);

/* Predict n rows, row by row. */
const char *peer_predict(int way, const void *rows, int64_t n);

/* A result of the last call. */
double peer_result(int64_t i);

#endif
