"""The example of a library for C: opens the model and computes its first output of some rows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hbtvm.compiler.exporting.constants import quoted
from hbtvm.compiler.exporting.header import Library

_TOP = """/* Computes PREDICT of WHAT.
 *
 * With the static library:  cc example.c libNAME.a -lm -pthread -o example
 * With the shared library:  cc example.c -L. -lNAME -Wl,-rpath,'$ORIGIN' -lm -pthread -o example
 */
#include <stdio.h>
#include <string.h>

"""

OPENING = """
int main(void) {
  NAME_error error;
  NAME_model *model = NAME_open(0);
  if (!model) {
    const char *lacks = NAME_cpu_lacks();
    fprintf(stderr, "%s%s\\n", lacks ? "this CPU lacks " : "there is not enough memory", lacks ? lacks : "");
    return 1;
  }
"""
"""The beginning of each example."""

_MAIN = """CALL
  if (code == UPPER_OK) {
    for (int row = 0; row < ROWS; ++row) {
      for (int i = 0; i < WIDTH; ++i) printf("SHOWN ", CASTout[row * WIDTH + i]);
      printf("\\n");
    }
  } else {
    fprintf(stderr, "row %lld, column %lld: %s\\n", (long long)error.row, (long long)error.column,
            NAME_message(code));
  }
  NAME_close(model);
  return code != UPPER_OK;
}
"""

_ROWS = """#include "NAME.h"

#define ROWS 2
#define WIDTH UPPER_PREFIX_COLUMNS

static double rows[ROWS * UPPER_COLUMNS]; /* row by row */
static RESULT out[ROWS * WIDTH];
"""

_BATCH = """#include "NAME.h"

/* As the specification of Arrow's C data interface has them. */
struct ArrowSchema {
  const char *format, *name, *metadata;
  int64_t flags, n_children;
  struct ArrowSchema **children, *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length, null_count, offset, n_buffers, n_children;
  const void **buffers;
  struct ArrowArray **children, *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

#define ROWS 1
#define WIDTH UPPER_PREFIX_COLUMNS

static RESULT out[ROWS * WIDTH];

/* What the batch holds belongs to this program, which has nothing to free. */
static void release_schema(struct ArrowSchema *schema) { schema->release = NULL; }
static void release_array(struct ArrowArray *array) { array->release = NULL; }

static struct ArrowSchema schemas[UPPER_COLUMNS], *fields[UPPER_COLUMNS];
static struct ArrowArray arrays[UPPER_COLUMNS], *columns[UPPER_COLUMNS];
static const void *buffers[UPPER_COLUMNS][3], *no_buffers[1];

/* The row: a text for each column of texts; other columns have NULL, and a format in `formats`: g for the
   number 0, n for a missing value. */
static const char *const row_texts[UPPER_COLUMNS] = {TEXTS};
static const char *const formats[UPPER_COLUMNS] = {FORMATS};
static const double zero[1];
static int32_t offsets[UPPER_COLUMNS][2]; /* of each text: where it begins and ends */
"""

_CALL_ROWS = "  int code = NAME_METHOD_f64(model, rows, ROWS, out, 0, &error);"

_CALL_BATCH = """\
  for (int i = 0; i < UPPER_COLUMNS; ++i) {
    const char *name = NAME_column_name(i);
    const char *text = row_texts[i];
    offsets[i][1] = text ? (int32_t)strlen(text) : 0;
    buffers[i][1] = text ? (const void *)offsets[i] : (const void *)zero;
    buffers[i][2] = text;
    schemas[i] = (struct ArrowSchema){.format = formats[i], .name = name ? name : ""};
    schemas[i].release = release_schema;
    schemas[i].flags = 2; /* it may hold nulls */
    arrays[i] = (struct ArrowArray){.length = ROWS, .buffers = buffers[i], .release = release_array};
    arrays[i].n_buffers = text ? 3 : formats[i][0] == 'g' ? 2 : 0;
    arrays[i].null_count = arrays[i].n_buffers ? 0 : ROWS;
    fields[i] = &schemas[i];
    columns[i] = &arrays[i];
  }
  struct ArrowSchema schema = {
      .format = "+s", .name = "", .n_children = UPPER_COLUMNS, .children = fields, .release = release_schema};
  struct ArrowArray batch = {.length = ROWS,
                             .n_buffers = 1,
                             .buffers = no_buffers,
                             .n_children = UPPER_COLUMNS,
                             .children = columns,
                             .release = release_array};
  int code = NAME_METHOD_arrow(model, &schema, &batch, out, 0, &error);"""


_FORMATS = {str: '"u"', int: '"g"', type(None): '"n"'}
"""Arrow's formats of texts, numbers and missing values."""


def example(library: Library, values: Sequence[str | int | None]) -> str:
    """Return the C file, with compiler commands at the top.

    `values`: a row for libraries that read batches: of each column a text, 0 for a number, or None.
    """
    method = library.methods[0]
    result = method.c_types[1]
    text = _TOP + (_ROWS if library.rows else _BATCH) + OPENING + _MAIN
    text = text.replace("CALL", _CALL_ROWS if library.rows else _CALL_BATCH)
    words = {
        "WHAT": "two rows of zeros" if library.rows else "a row",
        "TEXTS": ", ".join(quoted(value) if isinstance(value, str) else "NULL" for value in values),
        "FORMATS": ", ".join(_FORMATS[type(value)] for value in values),
        "SHOWN": "%g" if result in ("float", "double") else "%lld",
        "CAST": "" if result in ("float", "double") else "(long long)",
        "RESULT": result,
        "PREDICT": method.name,
        "METHOD": method.name,
        "PREFIX": method.name.upper(),
        "UPPER": library.name.upper(),
        "NAME": library.name,
    }
    return re.sub("|".join(words), lambda match: words[match[0]], text)
