/* Predicts some blocks of rows, and prints the results: NAME=VALUE arguments `rows` (a file of float32), `features`,
 * `n` (rows of a block), `blocks`, and those of the library's own source (see ../native/peer.h).
 */
#include <stdio.h>
#include <stdlib.h>

#include "../native/options.h"

int main(int argc, char **argv) {
  argument_count = argc;
  arguments = argv;
  const char *error = peer_open();
  size_t features = (size_t)option_number("features"), n = (size_t)option_number("n");
  size_t blocks = (size_t)option_number("blocks"), count = n * blocks * features;
  size_t size = peer_takes_double() ? sizeof(double) : sizeof(float);
  float *values = malloc(count * sizeof *values);
  char *rows = aligned_alloc(64, (count * size + 63) / 64 * 64);
  FILE *file = fopen(option("rows"), "rb");
  if (!file || !values || !rows || fread(values, sizeof *values, count, file) != count) error = "no rows";
  fclose(file);
  for (size_t i = 0; i < count && error == NULL; i++) {
    if (size == sizeof(double)) ((double *)rows)[i] = values[i];
    else ((float *)rows)[i] = values[i];
  }
  if (error == NULL) error = peer_prepare(0, (int64_t)n);
  for (size_t b = 0; b < blocks && error == NULL; b++) {
    error = peer_predict(0, rows + b * n * features * size, (int64_t)n);
    for (size_t i = 0; i < n * (size_t)peer_outputs() && b + 1 == blocks; i++) printf("%.9g\n", peer_result((int64_t)i));
  }
  if (error != NULL) fprintf(stderr, "%s\n", error);
  return error != NULL;
}
