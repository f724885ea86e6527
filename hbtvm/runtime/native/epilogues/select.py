"""Derivation of the native executor's epilogue from an output's node, see `hbtvm/native/epilogue.h`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from hbtvm.graph.outputs.output import Output, OutputSpec, unrounded
from hbtvm.operators import formulas
from hbtvm.operators.base import Constant, Input, Node
from hbtvm.operators.coupling import Coupling
from hbtvm.operators.patterns import operand
from hbtvm.operators.pointwise import Elementwise
from hbtvm.operators.shapes import Concat, Reduce, Select
from hbtvm.runtime.native.epilogues.epilogue import MOST_COUPLED, STEPS, TYPES, Epilogue, Rule, Type

_FORMULAS: dict[str, Callable[[Node], Node]] = {
    "softmax": formulas.softmax,
    "shares": formulas.shares,
    "signed_square": formulas.signed_square,
    "likelier": formulas.likelier,
}
"""Steps that are several nodes."""

_EXACT = ("greater", "greater_equal", "less", "likelier", "minimum", "maximum", "negative", "sign")
"""Steps that make float32 numbers of float32 numbers."""

_Steps = list[tuple[str, np.ndarray]]
"""Names and constants."""


def epilogue_of(
    spec: OutputSpec, output: Output | None, *, n_outputs: int, exported: bool = False
) -> Epilogue | None:
    """Return the epilogue of a model's output; None if only numpy computes it, or there is none.

    Parameters
    ----------
    output
        As for `OutputSpec.compute`.
    n_outputs
        Scores per row.
    exported
        Whether to include what `OutputSpec.hangs_on_power`: the last bit of C's ``pow`` may differ from
        numpy's power, which matters for rows on the threshold.
    """
    name = spec.name_of(output)
    if name not in spec.nodes or (spec.hangs_on_power(name) and not exported):
        return None
    epilogue = _reduced(spec.nodes[name])
    if epilogue is None or epilogue.last > n_outputs:
        return None
    if name == "index" and spec.classes:
        return _looked_up(epilogue, spec.classes, spec.is_flat(name))
    dtype = spec.dtype_of(name)
    if dtype not in TYPES or (epilogue.single and epilogue.plain and dtype != "float32"):
        return None
    cuts = tuple(pairwise((0, *accumulate(map(len, spec.classes))))) if spec.is_split(name) else ()
    return replace(epilogue, dtype=np.dtype(dtype), type=TYPES[dtype], flat=spec.is_flat(name), cuts=cuts)


def epilogue_of_columns(
    label_dtype: str | None, rows_dtype: str, n_outputs: int, keeps_axis: bool = False
) -> Epilogue:
    """Return the epilogue of a transformer's columns, as in `hbtvm.graph.outputs.output.columns`.

    Parameters
    ----------
    label_dtype, rows_dtype
        Parameters of that function.
    n_outputs
        Scores per row.
    keeps_axis
        A parameter of that function.
    """
    if label_dtype == "int64":
        width, dtype = n_outputs if keeps_axis else 1, "int64"
    else:
        single = label_dtype == "float32" or (label_dtype == "rows" and rows_dtype == "float32")
        width, dtype = n_outputs, "float32" if single else "float64"
    flat = dtype == "int64" and not keeps_axis
    return Epilogue(np.dtype(dtype), width, flat, TYPES[dtype], 0, width, plain=True)


def _reduced(node: Node) -> Epilogue | None:
    """Return the epilogue of a node's values: a rule, and what `_values` returns."""
    top = unrounded(node)
    if isinstance(top, Coupling):
        pairs = _values(top.x)
        if pairs is None or not pairs.plain or top.classes > MOST_COUPLED:
            return None
        return replace(pairs, plain=False, columns=top.classes, rule=Rule.COUPLED)
    targets = _targets(top)
    if targets is not None:
        x, ends = targets
        values = _values(x)
        return values and replace(
            values, plain=False, columns=len(ends), rule=Rule.LARGEST, targets=len(ends), ends=np.array(ends)
        )
    second = operand(top, formulas.with_complement, 1)
    if second is None:
        return _values(node)
    values = _values(second)
    return values and replace(values, plain=False, columns=2, rule=Rule.WITH_COMPLEMENT)


def _targets(node: Node) -> tuple[Node, list[int]] | None:
    """Return what the positions of the largest values of each target are of, and the targets' ends."""
    parts = node.parts if isinstance(node, Concat) else (node,)
    sources = [
        part.x
        for part in parts
        if isinstance(part, Reduce) and part.function == "argmax" and part.groups == 1
    ]
    if len(sources) < len(parts):
        return None
    if len(parts) == 1:
        return sources[0], [sources[0].width]
    ends = list(accumulate(source.width for source in sources))
    runs = [source for source in sources if isinstance(source, Select) and source.x is sources[0].inputs[0]]
    columns = [column for run in runs for column in run.indices.tolist()]
    x = sources[0].inputs[0]
    return (x, ends) if len(runs) == len(parts) and columns == list(range(x.width)) else None


def _values(node: Node) -> Epilogue | None:
    """Return the epilogue of a chain of functions of scores; None if C lacks one.

    It computes in float32 if the values are rounded behind each function, those that are exact excepted.
    """
    steps: _Steps = []
    single: bool | None = None
    width = node.width
    while True:
        rounded, node = node is not unrounded(node), unrounded(node)
        if rounded and single is False:
            return None
        single = True if rounded else single
        if isinstance(node, Input) or (isinstance(node, Select) and isinstance(node.x, Input)):
            break
        step = _step(node, rounded)
        if step is None or step[1].width != width:
            return None
        before, node = step
        if not rounded and not all(name in _EXACT for name, _ in before):
            if single:
                return None
            single = False
        steps = before + steps
    if single and not rounded:
        return None
    first = node.attributes().get("first") if isinstance(node, Select) else 0
    if first is None:
        return None
    return Epilogue(
        np.dtype("float64"), width, width == 1, Type.F64, first, first + width, plain=not steps,
        single=bool(single), step=np.array([STEPS[name] for name, _ in steps], np.int64),
        constants=np.array([np.broadcast_to(numbers, width) for _, numbers in steps], np.float64),
    )  # fmt: skip


def _step(node: Node, rounded: bool) -> tuple[_Steps, Node] | None:
    """Return the last steps that a node is, and the node in front of them; None if C lacks them."""
    for name, formula in _FORMULAS.items():
        x = operand(node, formula)
        if x is not None:
            return [(name, np.zeros(1))], x
    if not isinstance(node, Elementwise) or node.function not in STEPS:
        return None
    if len(node.operands) == 1:
        # C's sigmoid in float32 is XGBoost's.
        x = operand(node, formulas.float32_sigmoid) if rounded else None
        return [(node.function, np.zeros(1))], node.operands[0] if x is None else x
    left, right = node.operands
    if isinstance(right, Constant) and node.function != "power":
        return [(node.function, right.values)], left
    if isinstance(left, Constant) and node.function == "power":
        return [("power", left.values)], right
    if isinstance(left, Constant) and node.function == "subtract":
        return [("negative", np.zeros(1)), ("add", left.values)], right
    return None


def _looked_up(positions: Epilogue, classes: Sequence[np.ndarray], flat: bool) -> Epilogue | None:
    """Return an epilogue for labels by position: bytes of a table, or positions of Python objects."""
    kind = classes[0].dtype
    if positions.columns != len(classes):
        return None
    starts = np.array([0, *accumulate(map(len, classes))], np.int64)
    labelled = replace(positions, plain=False, flat=flat, targets=len(classes), labels=starts)
    if kind.hasobject:
        return replace(labelled, dtype=np.dtype("int64"), type=Type.I64, lookups=tuple(classes))
    if not kind.itemsize:
        return None
    try:
        # Labels of all targets have the first target's type, like columns of a numpy array.
        table = np.concatenate([labels.astype(kind) for labels in classes])
    except (TypeError, ValueError):
        return None
    return replace(labelled, dtype=kind, type=Type.BYTES, table=np.frombuffer(table.tobytes(), np.uint8))
