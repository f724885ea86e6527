"""The header of a library for C, with its documentation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hbtvm.compiler.exporting.methods import DTYPES, Method

ABI = 1  # version of the interface; within a version, functions are only added

CODES = (
    ("OK", "no error"),
    ("ERROR_ARGUMENT", "a null pointer, or a number below 0"),
    ("ERROR_MEMORY", "there is not enough memory"),
    ("ERROR_NAN", "NaN in a column that accepts no missing values"),
    ("ERROR_INFINITY", "a value that is infinite, or too large for the type that the model computes in"),
    ("ERROR_NO_LABEL", "a row that has no label"),
    ("ERROR_NOT_FLOAT32", "a value that float32 does not hold; the model was compiled for float32 rows"),
    ("ERROR_KERNEL", "a kernel refused its arguments, which is a bug"),
    ("ERROR_BATCH", "not an Arrow record batch, or a damaged one"),
    ("ERROR_COLUMN_COUNT", "a batch with more or fewer columns than the model"),
    ("ERROR_MISSING_COLUMN", "a batch that lacks a column"),
    ("ERROR_EXTRA_COLUMN", "a batch with a column that was not in the training data"),
    ("ERROR_COLUMN_TWICE", "a batch that has a column twice"),
    ("ERROR_COLUMN_ORDER", "a batch with columns in another order than in training"),
    ("ERROR_TYPE", "a column of an unsupported type"),
    ("ERROR_NOT_A_NUMBER", "a text where a number is expected"),
    ("ERROR_NOT_A_TEXT", "not a text where a text is expected"),
    ("ERROR_NOT_A_CATEGORY", "numbers where training had categories or texts"),
    ("ERROR_UNKNOWN_CATEGORY", "a category that was not in the training data"),
    ("ERROR_NULL", "a missing value in a column that had none in training"),
)
"""Names and meanings of status codes, in the order of their numbers (`enum exported_code`)."""


@dataclass(frozen=True)
class Library:
    """The facts of a library that its header states."""

    name: str  # the library's name, the prefix of its functions
    # `model`, `version`: the model in words, and the version of hbtvm that compiled it
    model: str
    version: str
    methods: Sequence[Method]
    width: int  # columns of rows
    rows: bool  # whether it reads rows of numbers
    columns: Sequence[str]  # names of columns; empty if the model was trained without
    labels: Sequence[Sequence[str]]  # the labels of each target
    codes: Sequence[int]  # columns that hold codes of categories
    lacking: Sequence[str]  # names of Python functions that it lacks
    arrow: Sequence[int]  # numbers of its models that read batches of Arrow
    # Instruction sets that it checks for when opened, by names that LLVM and C compilers share
    features: Sequence[str]


def header(library: Library) -> str:
    """Return the header file."""
    name, upper = library.name, library.name.upper()
    parts = [
        _introduction(library),
        f"#ifndef {upper}_H\n#define {upper}_H\n\n#include <stdint.h>",
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        *(["struct ArrowSchema;\nstruct ArrowArray;"] if library.arrow else []),
        _numbers(library),
        errors_of(name, upper),
        opening(name),
        "\n\n".join(_functions(library, method) for method in library.methods),
        _facts(library),
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif /* {upper}_H */",
    ]
    return "\n\n".join(parts) + "\n"


def comment(text: str) -> str:
    """Return paragraphs as a C comment, wrapped."""
    lines = []
    for part in text.split("\n"):
        lines += textwrap.wrap(part.replace("*/", "* /"), 106, break_long_words=False) or [""]
    body = "\n".join(f" * {line}".rstrip() for line in lines)
    return "/*" + body[2:] + ("\n */" if len(lines) > 1 else " */")


def _introduction(library: Library) -> str:
    name = library.name
    text = (
        f"{name}: {plain(library.model)}, compiled by hbtvm {plain(library.version)}.\n\n"
        f"The library holds the whole model: nothing is opened or parsed when it runs. It needs the C "
        f"library, the mathematical library and threads: link with -l{name} -lm -pthread. Its results are "
        "those of the same package in Python, bit for bit."
    )
    if library.rows:
        text += (
            f"\n\nRows are numbers of type float or double, row by row without gaps: {library.width} columns "
            "each, aligned as every array of their type is. Float rows and double rows with the same values "
            "may give different results where the model's own library computes in double."
        )
    if library.rows and library.codes:
        text += f" Columns of categories hold their codes: {', '.join(map(str, library.codes))}."
    if library.arrow:
        text += (
            "\n\nBatches are struct arrays of Arrow's C data interface, whose structures any library of "
            "Arrow declares. They are only read, and never released. Columns are looked at as a data "
            "frame's in Python: integers, floats, bools, texts, and dictionaries of these. `out` has room "
            "for the results of all rows."
        )
    text += (
        "\n\nAll functions may be called from several threads at once, with the same model, too; only "
        "closing a model is not possible while others use it. After a fork, the child goes on using its "
        "models: threads start again when they are needed. Fork while no other thread is within a call, as "
        "memory allocation itself demands of most C libraries. There is no state beside that of opened "
        "models and the scratch memory that each thread keeps until it ends."
    )
    if library.lacking:
        text += f"\n\nNot in this library, but in Python: {', '.join(library.lacking)}."
    return comment(text)


def _numbers(library: Library) -> str:
    upper = library.name.upper()
    lines = [
        comment("Version of this interface. What was compiled with a header works with every library of its "
                "version."),
        f"#define {upper}_ABI_VERSION {ABI}",
        f"int {library.name}_abi_version(void);",
        "",
        comment("Columns of rows."),
        f"#define {upper}_COLUMNS {library.width}",
        "",
        comment("Results of a row, by function."),
        *(f"#define {upper}_{method.name.upper()}_COLUMNS {method.columns}" for method in library.methods),
    ]  # fmt: skip
    return "\n".join(lines)


def errors_of(name: str, upper: str) -> str:
    """Return the status codes, and the structure of an error's location."""
    codes = "\n".join(
        f"  {upper}_{code} = {number}{',' if number + 1 < len(CODES) else ''} /* {text} */"
        for number, (code, text) in enumerate(CODES)
    )
    return f"""/* What functions return. */
enum {name}_code {{
{codes}
}};

/* What was wrong, and where: the row and the column of a value, from 0; -1 where there is none. */
typedef struct {name}_error {{
  int code;
  int64_t row;
  int64_t column;
}} {name}_error;

/* A code in one English sentence. */
const char *{name}_message(int code);"""


def opening(name: str) -> str:
    """Return the declarations that open and close a model."""
    threads = comment(
        "Open the model. `threads` is the most that work on one call, the caller included; 0 for as many as "
        "it was tuned for, but no more than the CPUs that the process may use. They start with the first "
        "call that needs them. Returns a null pointer if there is no memory, this CPU lacks an instruction "
        "set, or `threads` is below 0."
    )
    return f"""typedef struct {name}_model {name}_model;

{threads}
{name}_model *{name}_open(int threads);

/* The name of the first instruction set that the model was compiled for and that this CPU lacks; null if it
 * has all of them. */
const char *{name}_cpu_lacks(void);

/* End the model's threads and free it. A null pointer is allowed. */
void {name}_close({name}_model *model);"""


def _functions(library: Library, method: Method) -> str:
    name = library.name
    each = "one" if method.columns == 1 else f"{method.columns} side by side"
    text = (
        f"Compute {method.description}: {each} for each of the n rows, and write "
        "it to `out`. At most `threads` threads compute; 0 for those that the model was opened with, which "
        f"are also the limit. Returns {name.upper()}_OK or an error code. Unless `error` is a null pointer, "
        "it receives the code and the place. After an error, the content of `out` is undefined."
    )
    if method.name == "predict_class":
        text += f" {name}_class_name returns the labels, in the same order as Python's `classes_`."
    ends = [*ends_of(library, method)]
    lines = [comment(text)]
    for dtype, kind, result in zip(DTYPES, ("float", "double"), method.c_types, strict=True):
        if suffix(dtype) in ends:
            lines.append(
                f"int {name}_{method.name}_{suffix(dtype)}(const {name}_model *model, const {kind} *rows,\n"
                f"    int64_t n, {result} *out, int threads, {name}_error *error);"
            )
    if "arrow" in ends:
        lines.append(
            f"int {name}_{method.name}_arrow(const {name}_model *model, const struct ArrowSchema *schema,\n"
            f"    const struct ArrowArray *batch, {method.c_types[0]} *out, int threads,\n"
            f"    {name}_error *error);"
        )
    return "\n".join(lines)


def ends_of(library: Library, method: Method) -> Iterator[str]:
    """Yield the suffixes of a method's functions."""
    if library.rows:
        yield from map(suffix, DTYPES)
    # If results depend on the rows' type, a batch would decide the type of the results.
    if method.model in library.arrow and len({*method.c_types}) == 1:
        yield "arrow"


def suffix(dtype: str) -> str:
    """Return the suffix of functions for rows of a dtype."""
    return "f" + dtype.removeprefix("float")


def _facts(library: Library) -> str:
    name = library.name
    lines = [
        comment("Columns of rows, and the name of one; a null pointer if there is no such column, or the "
                "model was trained without names."),
        f"int64_t {name}_columns(void);",
        f"const char *{name}_column_name(int64_t column);",
        "",
        comment("How many outputs there are, what they are called, and results of a row; a null pointer, or "
                "-1, if there is no such output."),
        f"int64_t {name}_outputs(void);",
        f"const char *{name}_output_name(int64_t output);",
        f"int64_t {name}_output_columns(int64_t output);",
    ]  # fmt: skip
    if len(library.labels) == 1:
        lines += [
            "",
            comment(
                "How many classes there are, and the label of one in UTF-8; a null pointer if there is none."
            ),
            f"int64_t {name}_classes(void);",
            f"const char *{name}_class_name(int64_t position);",
        ]
    elif library.labels:
        lines += [
            "",
            comment("How many targets there are, classes of one (-1 if there is no such target), and the "
                    "label of one in UTF-8; a null pointer if there is none."),
            f"int64_t {name}_targets(void);",
            f"int64_t {name}_classes(int64_t target);",
            f"const char *{name}_class_name(int64_t target, int64_t position);",
        ]  # fmt: skip
    return "\n".join(lines)


def plain(text: str) -> str:
    """Return a package's text for a comment, which it must not end."""
    return "".join(
        character if character.isprintable() and character.isascii() and character != "*" else "?"
        for character in text
    )


def declared(library: Library) -> list[str]:
    """Return the names of all functions."""
    ends = [
        "abi_version",
        "message",
        "open",
        "close",
        "cpu_lacks",
        "columns",
        "column_name",
        "outputs",
        "output_name",
    ]
    ends += ["output_columns"]
    if library.labels:
        ends += ["classes", "class_name"] + (["targets"] if len(library.labels) > 1 else [])
    ends += [f"{method.name}_{end}" for method in library.methods for end in ends_of(library, method)]
    return [f"{library.name}_{end}" for end in ends]
