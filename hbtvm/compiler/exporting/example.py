"""The example of a library for C: opens the model and computes its first output of two rows."""

from __future__ import annotations

from hbtvm.compiler.exporting.header import Library

_FORMATS = {"float": "%g", "double": "%g"}


def example(library: Library) -> str:
    """Return the C file, which tells at its top how it is compiled."""
    name, upper, method = library.name, library.name.upper(), library.methods[0]
    result = method.c_types[1]
    shown, cast = ("%g", "") if result in _FORMATS else ("%lld", "(long long)")
    return f"""/* Predicts two rows of zeros.
 *
 * With the static library:  cc example.c libNAME.a -lm -pthread -o example
 * With the shared library:  cc example.c -L. -lNAME -Wl,-rpath,'$ORIGIN' -lm -pthread -o example
 */
#include <stdio.h>

#include "{name}.h"

#define ROWS 2

int main(void) {{
  static double rows[ROWS * {upper}_COLUMNS]; /* row by row */
  static {result} out[ROWS * {upper}_{method.name.upper()}_COLUMNS];
  {name}_error error;

  {name}_model *model = {name}_open(0);
  if (!model) {{
    fprintf(stderr, "there is not enough memory\\n");
    return 1;
  }}
  int code = {name}_{method.name}_f64(model, rows, ROWS, out, 0, &error);
  if (code == {upper}_OK) {{
    for (int row = 0; row < ROWS; ++row) {{
      for (int i = 0; i < {upper}_{method.name.upper()}_COLUMNS; ++i) {{
        printf("{shown} ", {cast}out[row * {upper}_{method.name.upper()}_COLUMNS + i]);
      }}
      printf("\\n");
    }}
  }} else {{
    fprintf(stderr, "row %lld, column %lld: %s\\n", (long long)error.row, (long long)error.column,
            {name}_message(code));
  }}
  {name}_close(model);
  return code != {upper}_OK;
}}
""".replace("NAME", name)
