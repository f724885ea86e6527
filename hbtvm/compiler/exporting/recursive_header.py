"""The header of a recursive model's library for C."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hbtvm.compiler.exporting.header import ABI, comment, opening, plain
from hbtvm.compiler.exporting.methods import Method
from hbtvm.runtime.recursive.entry import RecursionEntry, RecursiveInput

CODES = (
    (0, "OK", "no error"),
    (1, "ERROR_ARGUMENT", "a null pointer, or a number below 0"),
    (2, "ERROR_MEMORY", "there is not enough memory"),
    (7, "ERROR_KERNEL", "a kernel refused its arguments, which is a bug"),
    (20, "ERROR_ARRAYS", "starts or first do not rise from 0 to the numbers of nodes and edges"),
    (21, "ERROR_CYCLE", "a node depends on itself"),
    (22, "ERROR_CHILD", "a child of a node is not in its structure"),
    (23, "ERROR_CHILDREN", "a node has more children than the model takes"),
    (24, "ERROR_NUMBER", "an index of a node is out of range"),
    (25, "ERROR_ROOM", "there are more results than there is room for"),
    (26, "ERROR_SIZE", "more than 2^31 - 2^16 nodes or edges"),
)
"""Numbers, names and meanings of status codes (`enum exported_code`, `enum recursive_status`)."""

_RESULTS = {
    "roots": "one for each node that is nobody's child, in the order of nodes",
    "nodes": "one for each node",
    "total": "one for each structure, of the sum over its nodes",
    "mean": "one for each structure, of the mean over its nodes",
    "most": "one for each structure, of the maximum over its nodes",
}
_FIELDS = ("structures", "nodes", "edges", "starts", "first", "child")
_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const
    constexpr continue default delete do double else enum EOF explicit export extern false float for
    friend goto if inline int linux long mutable namespace new not not_eq NULL nullptr operator or or_eq
    private protected public register restrict return short signed sizeof static struct switch template
    this throw true try typedef typeid typename typeof union unix unsigned using virtual void volatile
    while xor xor_eq
"""
"""Keywords of C and C++, and names that headers or compilers define."""

_RESERVED = frozenset(_WORDS.split()) | {*_FIELDS}


@dataclass(frozen=True)
class RecursiveLibrary:
    """The facts of a library that its header states."""

    # `name`, `model`, `version`, `features`, `lacking`: as in `hbtvm.compiler.exporting.header.Library`
    name: str
    model: str
    version: str
    entry: RecursionEntry  # the recursive model
    methods: Sequence[Method]  # methods of the layers behind
    labels: Sequence[str]  # classes' labels
    lacking: Sequence[str]
    features: Sequence[str]

    @property
    def outputs(self) -> list[tuple[str, str, int]]:
        """Return the name, C type and size of a result, for each function of outputs."""
        width = math.prod(self.entry.shape)
        outputs = [(method.name, method.c_types[0], method.columns) for method in self.methods]
        # Without layers behind, the readout is the prediction.
        return [*outputs, ("readout", "float", width)] if outputs else [("predict", "float", width)]


def input_names(entry: RecursionEntry) -> list[str]:
    """Return the inputs' C identifiers: their names if possible, else numbered."""
    names: list[str] = []
    for at, input_ in enumerate(entry.inputs):
        fits = (
            re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", input_.name, re.ASCII)
            and input_.name not in _RESERVED
        )
        name = input_.name if fits else f"input_{at}"
        names.append(name if name not in names else f"input_{at}_")
    return names


def declared(library: RecursiveLibrary) -> list[str]:
    """Return the names of all functions."""
    ends = [
        "abi_version",
        "message",
        "open",
        "close",
        "cpu_lacks",
        *(output for output, _, _ in library.outputs),
    ]
    if library.labels:
        ends += ["classes", "class_name"]
    return [f"{library.name}_{end}" for end in ends]


def header(library: RecursiveLibrary) -> str:
    """Return the header file."""
    upper = library.name.upper()
    parts = [
        _introduction(library),
        f"#ifndef {upper}_H\n#define {upper}_H\n\n#include <stdint.h>",
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        _numbers(library),
        _errors(library.name),
        _structures(library),
        opening(library.name),
        _calls(library),
        "\n\n".join(_function(library, *output) for output in library.outputs),
        *([_labels(library.name)] if library.labels else []),
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif /* {upper}_H */",
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(library: RecursiveLibrary) -> str:
    name = library.name
    text = (
        f"{name}: recursive model {plain(library.model)}, compiled by hbtvm "
        f"{plain(library.version)}.\n\nThe library holds the whole model: nothing is opened or parsed when "
        f"it runs. It needs the C library, the mathematical library and threads: link with -l{name} -lm "
        "-pthread. Its results are those of the same package in Python, bit for bit.\n\nAll functions may "
        "be called from several threads at once, with the same model, too; only closing a model is not "
        "possible while others use it. After a fork, the child goes on using its models. Fork while no "
        "other thread is within a call, as memory allocation itself demands of most C libraries. There is "
        "no state beside that of opened models and the scratch memory that each thread keeps until it ends."
    )
    if library.lacking:
        text += f"\n\nNot in this library, but in Python: {', '.join(library.lacking)}."
    return comment(text)


def _numbers(library: RecursiveLibrary) -> str:
    upper, entry = library.name.upper(), library.entry
    lines = [
        comment(
            "Version of this interface. What was compiled with a header works with every library of its "
            "version."
        ),
        f"#define {upper}_ABI_VERSION {ABI}",
        f"int {library.name}_abi_version(void);",
        "",
        comment("Most children of a node; -1 for any number."),
        f"#define {upper}_CHILDREN {-1 if entry.children is None else entry.children}",
        "",
        comment("Numbers of a result, by function."),
        *(f"#define {upper}_{name.upper()}_COLUMNS {columns}" for name, _, columns in library.outputs),
    ]
    return "\n".join(lines)


def _errors(name: str) -> str:
    upper = name.upper()
    codes = "\n".join(
        f"  {upper}_{code} = {number}{',' if number != CODES[-1][0] else ''} /* {text} */"
        for number, code, text in CODES
    )
    return f"""/* What functions return. */
enum {name}_code {{
{codes}
}};

/* What was wrong, and where: the structure, the node within it, and the input whose number it is, all from 0;
 * -1 where there is none. */
typedef struct {name}_error {{
  int code;
  int64_t structure;
  int64_t node;
  int64_t input;
}} {name}_error;

/* A code in one English sentence. */
const char *{name}_message(int code);"""


def _structures(library: RecursiveLibrary) -> str:
    name, entry = library.name, library.entry
    text = comment(
        "Trees, graphs without cycles, or sequences, side by side. Structure s has the nodes starts[s] to "
        "starts[s + 1] - 1, and node v the children child[first[v]] to child[first[v + 1] - 1], in order of "
        "place: numbers of nodes, counted through all structures; -1 where a place is empty. Nodes may come "
        "in any order; children first is fast. Arrays are only read, while a function runs."
    )
    fields = [
        "  int64_t structures;",
        "  int64_t nodes; /* of all structures */",
        "  int64_t edges; /* numbers in child */",
        "  const int64_t *starts; /* structures + 1 */",
        "  const int32_t *first; /* nodes + 1 */",
        "  const int32_t *child; /* edges */",
        *(
            f"  {_field(input_, field_name)}"
            for input_, field_name in zip(entry.inputs, input_names(entry), strict=True)
        ),
    ]
    return "\n".join([text, f"typedef struct {name}_structures {{", *fields, f"}} {name}_structures;"])


def _field(input_: RecursiveInput, name: str) -> str:
    suffix = "" if input_.name == name else f", {plain(input_.name)}"
    if input_.kind == "vector":
        return f"const float *{name}; /* nodes x {input_.size}{suffix} */"
    none = "; -1 for none" if input_.optional else ""
    return f"const int32_t *{name}; /* nodes{suffix}: from 0 to {input_.size - 1}{none} */"


_DESCRIPTIONS = {
    "predict": "what the model predicts",
    "predict_class": "positions of class labels",
    "predict_label": "the class labels",
    "predict_proba": "the probability of each class",
    "predict_raw": "the raw scores, before they become probabilities or predictions",
    "decision_function": "the decision function",
    "readout": "what the layers behind read of the states",
}


def _calls(library: RecursiveLibrary) -> str:
    """Return the documentation that all functions of outputs share."""
    results = _RESULTS[library.entry.over]
    return comment(
        f"The functions below write their results to `out`: {results}. `results` states for how many `out` "
        "has room, and receives their number, even if that is larger. At most `threads` threads compute; 0 "
        "for those that the model was opened with, which are also the limit. They return "
        f"{library.name.upper()}_OK or an error code. Unless `error` is a null pointer, it receives the code "
        "and the place. After an error, the content of `out` is undefined."
    )


def _function(library: RecursiveLibrary, output: str, kind: str, columns: int) -> str:
    name = library.name
    numbers = "a number" if columns == 1 else f"{columns} numbers side by side"
    text = f"{_DESCRIPTIONS.get(output, output)}: {numbers}."
    if output == "predict_class":
        text += f" {name}_class_name returns the labels, in the same order as Python's `classes_`."
    return (
        f"{comment(text[0].upper() + text[1:])}\n"
        f"int {name}_{output}(const {name}_model *model, const {name}_structures *structures,\n"
        f"    {kind} *out, int64_t *results, int threads, {name}_error *error);"
    )


def _labels(name: str) -> str:
    text = comment(
        "How many classes there are, and the label of one in UTF-8; a null pointer if there is none."
    )
    return f"{text}\nint64_t {name}_classes(void);\nconst char *{name}_class_name(int64_t position);"
