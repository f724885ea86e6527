"""The example of a recursive model's library for C: a structure of three nodes, and its first output."""

from __future__ import annotations

import re

from hbtvm.compiler.exporting.example import OPENING
from hbtvm.compiler.exporting.recursive_header import RecursiveLibrary, input_names

_TOP = """/* Computes PREDICT of one structure: node 2, whose child is node 1, whose child is node 0.
 *
 * With the static library:  cc example.c libNAME.a -lm -pthread -o example
 * With the shared library:  cc example.c -L. -lNAME -Wl,-rpath,'$ORIGIN' -lm -pthread -o example
 */
#include <stdio.h>

#include "NAME.h"

#define NODES 3
#define WIDTH UPPER_PREFIX_COLUMNS

static const int64_t starts[] = {0, NODES};
static const int32_t first[] = {0, 0, 1, 2}; /* no child, one, one */
static const int32_t child[] = {0, 1};
INPUTS
static RESULT out[NODES * WIDTH]; /* there are at most as many results as nodes */
"""

_REST = """  NAME_structures structures = {1, NODES, 2, starts, first, childFIELDS};
  int64_t results = NODES;
  int code = NAME_PREDICT(model, &structures, out, &results, 0, &error);
  if (code == UPPER_OK) {
    for (int64_t row = 0; row < results; ++row) {
      for (int i = 0; i < WIDTH; ++i) printf("SHOWN ", CASTout[row * WIDTH + i]);
      printf("\\n");
    }
  } else {
    fprintf(stderr, "structure %lld, node %lld: %s\\n", (long long)error.structure, (long long)error.node,
            NAME_message(code));
  }
  NAME_close(model);
  return code != UPPER_OK;
}
"""


def example(library: RecursiveLibrary) -> str:
    """Return the C file, with compiler commands at the top."""
    output, result, _ = library.outputs[0]
    fields, names = [], input_names(library.entry)
    for input_, name in zip(library.entry.inputs, names, strict=True):
        kind, size = ("float", f"NODES * {input_.size}") if input_.kind == "vector" else ("int32_t", "NODES")
        fields.append(f"static const {kind} {name}_of[{size}]; /* all 0 */")
    is_real = result in ("float", "double")
    values = {
        "INPUTS": "\n".join([*fields, ""]) if fields else "",
        "FIELDS": "".join(f", {name}_of" for name in names),
        "SHOWN": "%g" if is_real else "%lld",
        "CAST": "" if is_real else "(long long)",
        "RESULT": result,
        "PREDICT": output,
        "PREFIX": output.upper(),
        "UPPER": library.name.upper(),
        "NAME": library.name,
    }
    return re.sub("|".join(values), lambda match: values[match[0]], _TOP + OPENING + _REST)
