/* Times one library: answers requests, a line each, by lines of JSON, as benchmarks.peers.worker does.
 *
 *     open             load the model
 *     calibrate N      find the fastest way to predict N rows, and the seconds of a call
 *     time N CALLS     seconds per call, over so many calls
 *     outputs N FILE   write the results of the first calls to a file, as float64
 *     memory           most memory that the process had at once, in bytes
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "options.h"

enum { MOST_BLOCKS = 1000, CHECKED = 32, LINE = 4096 };

static FILE *answers;

static void *rows;
static int64_t row_count, features;
static int best; /* the fastest way for calls of `best_rows` rows */
static int64_t best_rows = -1;

any_function *function_of(void *library, const char *name) {
  void *address = dlsym(library, name);
  any_function *function = NULL;
  memcpy(&function, &address, sizeof function); /* ISO C has no cast from one to the other */
  return function;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void fail(const char *text) {
  char clean[256];
  size_t n = 0;
  for (; *text != '\0' && n + 1 < sizeof clean; text++)
    clean[n++] = *text == '"' || *text == '\\' || (unsigned char)*text < ' ' ? ' ' : *text;
  clean[n] = '\0';
  fprintf(answers, "{\"error\": \"%s\"}\n", clean);
}

/* Rows in the type that the library takes; they start where a cache line does. */
static const char *read_rows(void) {
  FILE *file = fopen(option("rows"), "rb");
  if (file == NULL) return "the rows cannot be read";
  fseek(file, 0, SEEK_END);
  size_t count = (size_t)ftell(file) / sizeof(float);
  rewind(file);
  size_t size = peer_takes_double() ? sizeof(double) : sizeof(float);
  features = option_number("features");
  row_count = (int64_t)count / features;
  rows = aligned_alloc(64, (count * size + 63) / 64 * 64);
  float *values = peer_takes_double() ? malloc(count * sizeof(float)) : rows;
  if (rows == NULL || values == NULL || fread(values, sizeof(float), count, file) != count) {
    fclose(file);
    return "the rows cannot be read";
  }
  fclose(file);
  if (peer_takes_double()) {
    for (size_t i = 0; i < count; i++) ((double *)rows)[i] = values[i];
    free(values);
  }
  return NULL;
}

static int64_t blocks_of(int64_t n) {
  int64_t blocks = row_count / n;
  return blocks < 1 ? 1 : blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks;
}

/* Calls go through many batches of rows, so that no branch predictor learns one by heart. */
static const void *block(int64_t i, int64_t n) {
  size_t size = peer_takes_double() ? sizeof(double) : sizeof(float);
  return (const char *)rows + (size_t)(i % blocks_of(n) * n * features) * size;
}

static const char *calibrate(int64_t n) {
  double fastest = 0.0;
  best_rows = -1;
  for (int way = 0; way < PEER_WAYS; way++) {
    if (peer_way(way, n) == NULL) continue;
    const char *error = peer_prepare(way, n);
    if (error == NULL) error = peer_predict(way, block(0, n), n);
    if (error != NULL) return error;
    double start = now(), seconds = 0.0;
    int64_t count = 0;
    while (count < 1 || (seconds < 0.05 && count < 100000)) {
      if ((error = peer_predict(way, block(count, n), n)) != NULL) return error;
      count++;
      seconds = now() - start;
    }
    if (best_rows < 0 || seconds / (double)count < fastest) {
      fastest = seconds / (double)count;
      best = way;
      best_rows = n;
    }
  }
  if (best_rows < 0) return "no way to predict";
  const char *error = peer_prepare(best, n);
  if (error != NULL) return error;
  fprintf(answers, "{\"ok\": {\"way\": \"%s\", \"seconds\": %.9g}}\n", peer_way(best, n), fastest);
  return NULL;
}

static const char *measure(int64_t n, int64_t calls) {
  /* Warm-up: threads may have gone to sleep while others were measured. */
  const char *error = peer_predict(best, block(calls - 1, n), n);
  double start = now();
  for (int64_t i = 0; i < calls && error == NULL; i++) error = peer_predict(best, block(i, n), n);
  double seconds = now() - start;
  if (error == NULL) fprintf(answers, "{\"ok\": %.9g}\n", seconds / (double)calls);
  return error;
}

static const char *outputs(int64_t n, const char *path) {
  int64_t blocks = blocks_of(n) < CHECKED ? blocks_of(n) : CHECKED;
  FILE *file = fopen(path, "wb");
  if (file == NULL) return "the results cannot be written";
  const char *error = NULL;
  for (int64_t i = 0; i < blocks && error == NULL; i++) {
    error = peer_predict(best, block(i, n), n);
    for (int64_t k = 0; k < n * peer_outputs() && error == NULL; k++) {
      double value = peer_result(k);
      if (fwrite(&value, sizeof value, 1, file) != 1) error = "the results cannot be written";
    }
  }
  if (fclose(file) != 0 && error == NULL) error = "the results cannot be written";
  if (error == NULL) fprintf(answers, "{\"ok\": [%" PRId64 ", %" PRId64 "]}\n", blocks * n, peer_outputs());
  return error;
}

static const char *memory(void) {
  char line[LINE];
  long kilobytes = -1;
  FILE *file = fopen("/proc/self/status", "r");
  while (file != NULL && kilobytes < 0 && fgets(line, sizeof line, file) != NULL) sscanf(line, "VmHWM: %ld", &kilobytes);
  if (file != NULL) fclose(file);
  if (kilobytes < 0) return "memory is not known";
  fprintf(answers, "{\"ok\": %ld}\n", 1024 * kilobytes);
  return NULL;
}

static const char *load(void) {
  double start = now();
  const char *error = peer_open();
  double seconds = now() - start;
  if (error == NULL) error = read_rows();
  if (error == NULL) fprintf(answers, "{\"ok\": {\"seconds\": %.9g}}\n", seconds);
  return error;
}

static const char *answer(char *line) {
  char *place = NULL;
  const char *request = strtok_r(line, " \n", &place);
  const char *first = strtok_r(NULL, " \n", &place), *second = strtok_r(NULL, "\n", &place);
  if (request == NULL) return "no request";
  if (strcmp(request, "open") == 0) return load();
  if (strcmp(request, "memory") == 0) return memory();
  int64_t n = first == NULL ? 0 : strtoll(first, NULL, 10);
  if (rows == NULL || n < 1 || n > row_count) return "there are not so many rows";
  if (strcmp(request, "calibrate") == 0) return calibrate(n);
  if (n != best_rows || second == NULL) return "calibrate first";
  if (strcmp(request, "time") == 0) return measure(n, strtoll(second, NULL, 10));
  if (strcmp(request, "outputs") == 0) return outputs(n, second);
  return "no such request";
}

int main(int argc, char **argv) {
  argument_count = argc;
  arguments = argv;
  /* Libraries may print to standard output, so answers go through a separate descriptor. */
  answers = fdopen(dup(1), "w");
  if (answers == NULL || dup2(2, 1) < 0) return 1;
  char line[LINE];
  while (fgets(line, sizeof line, stdin) != NULL) {
    const char *error = answer(line);
    if (error != NULL) fail(error);
    fflush(answers);
  }
  return 0;
}
