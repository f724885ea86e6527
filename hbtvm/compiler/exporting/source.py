"""The C source of a library: the model as constants, and the functions that its header declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from hbtvm.compiler.exporting.batches import Batches
from hbtvm.compiler.exporting.constants import Constants, Recorder, Tables
from hbtvm.compiler.exporting.header import ABI, Library, ends_of, suffix
from hbtvm.compiler.exporting.methods import DTYPES, Method
from hbtvm.compiler.exporting.rows import Rows
from hbtvm.runtime.native.description import Described, Stage, model_of
from hbtvm.runtime.native.epilogues.epilogue import Epilogue, EpilogueFields, fields_of

Part = tuple[Sequence[Stage], Described, Rows | None]
"""One of a library's models; without rows if it reads other values than numbers."""


def source(
    library: Library,
    parts: Sequence[Part],
    functions: dict[int, str],
    tables: Tables,
    readers: Mapping[int, Batches] = MappingProxyType({}),
) -> str:
    """Return the C file.

    `parts`: the model, and those of its ``transform`` and contributions, if any.
    `functions`: names of kernels' functions, by their placeholder addresses in `parts`.
    `tables`: collects the kernels' tables.
    `readers`: the readers of Arrow batches, by the model's number.
    """
    texts = {at: name for batches in readers.values() for at, name in batches.texts.items()}
    constants = Constants(tables, {**functions, **{at: f"&{name}" for at, name in texts.items()}})
    models, inputs = [], []
    for stages, described, rows in parts:
        kept = Recorder()
        models.append(constants.structure(model_of(kept, stages, described), kept))
        inputs.append(input_of(constants, rows))
    exported = constants.define(
        "struct exported",
        f"{{.count = {len(parts)}, .models = {{{', '.join(models)}}}, .inputs = {{{', '.join(inputs)}}}}}",
    )
    methods = [(method, method_of(constants, method)) for method in library.methods]
    body = [cpu_check(library.name, library.features), opening(library.name, exported)]
    for method, constant in methods:
        ends = [*ends_of(library, method)]
        body += [
            _function(library.name, method, dtype, constant) for dtype in DTYPES if suffix(dtype) in ends
        ]
        if "arrow" in ends:
            batches = readers[method.model]
            body.append(_batch_function(library.name, method, constant, constants, batches))
    body += _facts(library, constants)
    headers = [*(["arrow/arrow.h"] if readers else []), "exported/exported.h"]
    head = [
        *preamble(library.name, headers),
        *(f"extern kernel_function {name};" for name in functions.values()),
        *(f"extern const struct text {name};" for name in texts.values()),
        "",
    ]
    return "\n".join([*head, *constants.lines, "", *body]) + "\n"


def input_of(constants: Constants, rows: Rows | None) -> str:
    """Return a ``struct row_input`` for the rows."""
    if rows is None:
        return "{0}"
    read = f", .read = {constants.array(np.array(rows.read, np.int64))}" if rows.read else ""
    missing = ""
    if rows.missing is not None:
        missing = f", .missing = {constants.array(np.array([rows.missing], np.float32))}"
    conversions = ", ".join(
        f"{{{conversion.through}, {conversion.to}, {int(conversion.exact)}}}"
        for conversion in rows.conversions
    )
    return f"{{.columns = {rows.columns}{read}{missing}, .conversions = {{{conversions}}}}}"


def method_of(constants: Constants, method: Method) -> str:
    """Define a ``struct method``; return its name."""
    addresses = [_epilogue(constants, epilogue) for epilogue in method.epilogues]
    return constants.define(
        "struct method", f"{{.model = {method.model}, .epilogues = {{{', '.join(addresses)}}}}}"
    )


def _epilogue(constants: Constants, epilogue: Epilogue) -> str:
    fields: EpilogueFields = fields_of(epilogue)
    kept = Recorder()
    for array in fields.kept.values():
        if array.size:
            kept.numpy(array.reshape(-1))
    return constants.structure(fields, kept)


def preamble(name: str, headers: Sequence[str]) -> list[str]:
    """Return the start of a library's source: its header, whose functions it exports, and others."""
    return [
        "#pragma GCC visibility push(default)",
        f'#include "{name}.h"',
        "#pragma GCC visibility pop",
        "",
        "#include <math.h>",
        "#include <stdlib.h>",
        "",
        *(f'#include "{header}"' for header in headers),
        "",
        "extern const uint8_t hbtvm_tables[];",
    ]


def cpu_check(name: str, features: Sequence[str]) -> str:
    """Return the C function that names the first instruction set that the CPU lacks."""
    checks = [f'  if (!__builtin_cpu_supports("{feature}")) return "{feature}";' for feature in features]
    start = ["  __builtin_cpu_init();"] if checks else []
    lines = [f"const char *{name}_cpu_lacks(void) {{", *start, *checks, "  return NULL;", "}"]
    return "\n".join([*lines, ""])


def opening(name: str, exported: str, of: str = "") -> str:
    """Return the model's type, and the functions that open and close it and describe errors.

    `exported`: the name of its description.
    `of`: suffix of the executor's functions, for models of structures.
    """
    return f"""struct {name}_model {{
  struct opened{of} opened;
}};

int {name}_abi_version(void) {{ return {ABI}; }}

const char *{name}_message(int code) {{ return exported{of}_message(code); }}

{name}_model *{name}_open(int threads) {{
  {name}_model *model = threads < 0 || {name}_cpu_lacks() ? NULL : malloc(sizeof *model);
  if (model && !exported{of}_open(&model->opened, &{exported}, threads)) {{
    free(model);
    model = NULL;
  }}
  return model;
}}

void {name}_close({name}_model *model) {{
  if (model) exported{of}_close(&model->opened);
  free(model);
}}
"""


def _function(name: str, method: Method, dtype: str, constant: str) -> str:
    number_of = DTYPES.index(dtype)
    kind, result = ("float", "double")[number_of], method.c_types[number_of]
    return f"""int {name}_{method.name}_{suffix(dtype)}(const {name}_model *model, const {kind} *rows,
    int64_t n, {result} *out, int threads, {name}_error *error) {{
  const struct opened *opened = model ? &model->opened : NULL;
  struct exported_error found;
  int code = exported_run(opened, &{constant}, {number_of}, rows, n, out, threads, &found);
  if (error) *error = ({name}_error){{found.code, found.row, found.column}};
  return code;
}}
"""


def _batch_function(name: str, method: Method, constant: str, constants: Constants, batches: Batches) -> str:
    front, read = constants.structure(batches.fields, batches.kept), "NULL"
    if batches.read:
        read = constants.array(np.array(batches.read, np.int64))
    return f"""int {name}_{method.name}_arrow(const {name}_model *model, const struct ArrowSchema *schema,
    const struct ArrowArray *batch, {method.c_types[0]} *out, int threads, {name}_error *error) {{
  const struct opened *opened = model ? &model->opened : NULL;
  struct exported_error found;
  int code = exported_run_arrow(opened, &{constant}, {front}, {read}, schema, batch, out, threads, &found);
  if (error) *error = ({name}_error){{found.code, found.row, found.column}};
  return code;
}}
"""


def _facts(library: Library, constants: Constants) -> list[str]:
    name, methods, before = library.name, library.methods, len(constants.lines)
    columns = constants.texts(library.columns) if library.columns else ""
    names = constants.texts([method.name for method in methods])
    widths = constants.array(np.array([method.columns for method in methods], np.int64))
    labels = [constants.texts(values) for values in library.labels]
    counts = constants.array(np.array([len(values) for values in library.labels], np.int64)) if labels else ""
    count, width = len(methods), library.width
    lines = [*constants.lines[before:], ""]
    del constants.lines[before:]
    named = (
        f"column < 0 || column >= {width} ? NULL : {columns}[column]" if columns else "((void)column, NULL)"
    )
    lines += [
        f"int64_t {name}_columns(void) {{ return {width}; }}",
        f"const char *{name}_column_name(int64_t column) {{ return {named}; }}",
        f"int64_t {name}_outputs(void) {{ return {count}; }}",
        f"const char *{name}_output_name(int64_t output) {{",
        f"  return output < 0 || output >= {count} ? NULL : {names}[output];",
        "}",
        f"int64_t {name}_output_columns(int64_t output) {{",
        f"  return output < 0 || output >= {count} ? -1 : {widths}[output];",
        "}",
    ]
    if len(labels) == 1:
        lines += [
            f"int64_t {name}_classes(void) {{ return {len(library.labels[0])}; }}",
            f"const char *{name}_class_name(int64_t position) {{",
            f"  return position < 0 || position >= {len(library.labels[0])} ? NULL : {labels[0]}[position];",
            "}",
        ]
    elif labels:
        tables = f"static const char *const *const labels[] = {{{', '.join(labels)}}};"
        lines += [
            tables,
            f"int64_t {name}_targets(void) {{ return {len(labels)}; }}",
            f"int64_t {name}_classes(int64_t target) {{",
            f"  return target < 0 || target >= {len(labels)} ? -1 : {counts}[target];",
            "}",
            f"const char *{name}_class_name(int64_t target, int64_t position) {{",
            f"  if (position < 0 || position >= {name}_classes(target)) return NULL;",
            "  return labels[target][position];",
            "}",
        ]
    return lines
