/* A process without Python: reads rows as text, makes a batch of Arrow of them, and prints probabilities.
 *
 * A line holds size (or "null"), colour and count. Columns are given in another order than the model's, with one that
 * it does not know between them, and behind 3 rows that are not part of the batch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/abi.h"
#include "pipeline.h"

#define MOST 1000
#define BEFORE 3

static double sizes[MOST + BEFORE];
static int64_t counts[MOST + BEFORE];
static uint8_t there[(MOST + BEFORE + 7) / 8];
static int32_t ends[MOST + BEFORE + 1];
static char colours[MOST * 16];
static double shares[MOST * PIPELINE_PREDICT_PROBA_COLUMNS];

static void release_schema(struct ArrowSchema *schema) { schema->release = NULL; }
static void release_array(struct ArrowArray *array) { array->release = NULL; }

int main(void) {
  char size[64], colour[64];
  long long count;
  int64_t n = 0;
  memset(there, 0, sizeof there);
  for (int i = 0; i < BEFORE; ++i) sizes[i] = 1e300, counts[i] = -1;
  while (n < MOST && scanf("%63s %63s %lld", size, colour, &count) == 3) {
    int64_t at = n++ + BEFORE;
    counts[at] = count;
    if (strcmp(size, "null")) {
      sizes[at] = strtod(size, NULL);
      there[at / 8] |= (uint8_t)(1 << (at % 8));
    }
    size_t length = strlen(colour);
    memcpy(colours + ends[at], colour, length);
    ends[at + 1] = ends[at] + (int32_t)length;
  }
  const char *formats[] = {"l", "u", "u", "g"}, *names[] = {"count", "other", "colour", "size"};
  const void *count_buffers[] = {NULL, counts}, *text_buffers[] = {NULL, ends, colours};
  const void *size_buffers[] = {there, sizes}, *none[] = {NULL};
  const void **buffers[] = {count_buffers, text_buffers, text_buffers, size_buffers};
  struct ArrowSchema columns[4] = {{0}}, *column_pointers[4], schema = {.format = "+s", .release = release_schema};
  struct ArrowArray arrays[4] = {{0}}, *array_pointers[4], batch = {.length = n, .release = release_array};
  for (int i = 0; i < 4; ++i) {
    columns[i].format = formats[i];
    columns[i].name = names[i];
    columns[i].flags = ARROW_FLAG_NULLABLE;
    columns[i].release = release_schema;
    arrays[i].length = n;
    arrays[i].null_count = i == 3 ? -1 : 0;
    arrays[i].offset = BEFORE;
    arrays[i].n_buffers = formats[i][0] == 'u' ? 3 : 2;
    arrays[i].buffers = buffers[i];
    arrays[i].release = release_array;
    column_pointers[i] = &columns[i];
    array_pointers[i] = &arrays[i];
  }
  schema.n_children = batch.n_children = 4;
  schema.children = column_pointers;
  batch.children = array_pointers;
  batch.n_buffers = 1;
  batch.buffers = none;
  pipeline_error error;
  pipeline_model *model = pipeline_open(1);
  int code = pipeline_predict_proba_arrow(model, &schema, &batch, shares, 0, &error);
  if (code) fprintf(stderr, "%s (row %lld)\n", pipeline_message(code), (long long)error.row);
  for (int64_t i = 0; !code && i < n * PIPELINE_PREDICT_PROBA_COLUMNS; ++i) printf("%a\n", shares[i]);
  pipeline_close(model);
  return code != 0;
}
