"""Symbolic evaluation of an ONNX graph: rows become operators over the input's columns, others constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.damage import DAMAGE
from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.operations import (
    activations,
    arithmetic,
    casts,
    choosing,
    encoders,
    features,
    linear,
    logic,
    products,
    reductions,
    shapes,
    support_vectors,
    trees,
)
from hbtvm.frontends.onnx.reading import Document, Operation, Reference
from hbtvm.frontends.onnx.values import Known, Rows, Value, short
from hbtvm.graph.columns.table import Table
from hbtvm.words.printable import shown

OPERATIONS: Mapping[tuple[str, str], Evaluate] = {
    **{
        ("", kind): run
        for module in (arithmetic, logic, casts, activations, shapes, choosing, reductions, products)
        for kind, run in module.OPERATIONS.items()
    },
    **{
        ("ai.onnx.ml", kind): run
        for module in (features, encoders, linear, support_vectors, trees)
        for kind, run in module.OPERATIONS.items()
    },
    **{("com.microsoft", kind): run for kind, run in products.MICROSOFT.items()},
}
"""By domain and operator."""

_MOST_CONSTANTS = 1 << 26  # bound of the values of all computed constants
_DEEPEST = 16  # nesting depth of the model's operators

_REFOLDING = ("Reshape", "Identity", "Cast")
"""Operators that accept `Rows.unfolded`; the first resolves it."""

_INSTEAD = {
    ("", "NonZero"): "it counts rows",
    ("", "Compress"): "it drops rows",
    ("", "If"): "it decides at run time",
    ("", "Loop"): "it decides at run time",
    ("", "StringNormalizer"): "text is not supported from ONNX",
    ("", "TfIdfVectorizer"): "text is not supported from ONNX",
    ("com.microsoft", "Tokenizer"): "text is not supported from ONNX",
    ("ai.onnx.ml", "CastMap"): "inputs that are maps are not supported",
    ("ai.onnx.ml", "DictVectorizer"): "inputs that are maps are not supported",
}
"""Why some operators are not supported."""


class TooLarge(UnsupportedModel):
    """A graph exceeds a bound on all of its nodes together."""


@dataclass
class _Budget:
    nodes: int = 200_000
    constants: int = _MOST_CONSTANTS
    columns: int = 1 << 20


class Evaluator:
    """Computes the values of a graph's names."""

    def __init__(self, document: Document) -> None:
        self._document, self._budget = document, _Budget()

    def run(self, inputs: Mapping[str, Value]) -> dict[str, Known]:
        """Return the values of all names; an `UnsupportedModel` for outputs of unsupported operators.

        `inputs`: values of the graph's inputs.
        Raises `UnsupportedModel` if the graph is too large, `ModelError` if it is damaged.
        """
        body = self._document.body
        known: dict[str, Known] = {**body.constants, **inputs}
        self._evaluate(body.operations, known, 0)
        return known

    def constants(self) -> dict[str, np.ndarray]:
        """Return the graph's constants, including values computed from constants alone."""
        known: dict[str, Known] = dict(self._document.body.constants)
        for operation in self._document.body.operations:
            if all(name in known for name in operation.inputs):
                self._evaluate((operation,), known, 0)
        return {name: value for name, value in known.items() if isinstance(value, np.ndarray)}

    def _evaluate(self, operations: tuple[Operation, ...], known: dict[str, Known], depth: int) -> None:
        for operation in operations:
            inputs: list[Value | None] = []
            failed: UnsupportedModel | None = None
            for name in operation.inputs:
                if name and name not in known:
                    raise ModelError(
                        f"{operation.where} is damaged: its input '{shown(name, 60)}' is not computed before."
                    )
                value = known[name] if name else None
                if isinstance(value, UnsupportedModel):
                    failed, value = value, None
                inputs.append(value)
            results: Sequence[Known] = ()
            if failed is None:
                try:
                    results = self._outputs(operation, tuple(inputs), depth)
                except TooLarge:
                    raise
                except UnsupportedModel as error:
                    failed = error
            if failed is not None:
                results = [failed] * len(operation.outputs)
            known |= {name: value for name, value in zip(operation.outputs, results, strict=False) if name}

    def _outputs(
        self, operation: Operation, inputs: tuple[Value | None, ...], depth: int
    ) -> tuple[Value, ...]:
        self._budget.nodes -= 1
        if self._budget.nodes < 0:
            raise TooLarge("the ONNX graph has too many nodes, those of its own operators included.")
        key = operation.domain, operation.kind
        if key in self._document.functions:
            return self._function(key, operation, inputs, depth)
        run = OPERATIONS.get(key)
        if run is None:
            why = _INSTEAD.get(key)
            raise UnsupportedModel(f"{operation.where} is not supported{f': {why}' if why else ''}.")
        if any(isinstance(x, Rows) and x.unfolded for x in inputs) and key[1] not in _REFOLDING:
            raise UnsupportedModel(
                f"{operation.where} reads tensors joined row by row, which is not supported."
            )
        call = Call(operation, inputs, self._document.versions.get(operation.domain, 1))
        try:
            with np.errstate(all="ignore"):
                value = run(call)
        except (ModelError, UnsupportedModel):
            raise
        except DAMAGE as error:
            text = shown(f"{type(error).__name__}: {error}", most=200)
            raise ModelError(
                f"{operation.where} is damaged, or not supported in this form: {text}."
            ) from error
        results = tuple(map(short, value)) if isinstance(value, tuple) else (short(value),)
        for result in results:
            if isinstance(result, np.ndarray):
                self._budget.constants -= result.size
            else:
                # Each column of a table is an object; nodes hold a few numbers for each.
                is_table = isinstance(result.content, Table)
                self._budget.columns -= result.width if is_table else result.width // 16
        if self._budget.constants < 0:
            raise TooLarge("the ONNX graph computes too many constants.")
        if self._budget.columns < 0:
            raise TooLarge("the tensors of the ONNX graph have too many columns in all.")
        return results

    def _function(
        self, key: tuple[str, str], operation: Operation, inputs: tuple[Value | None, ...], depth: int
    ) -> tuple[Value, ...]:
        """Evaluate a function of the model."""
        if depth >= _DEEPEST:
            raise UnsupportedModel(f"{operation.where} is not supported: operators within operators.")
        names, results, body = self._document.functions[key]
        known: dict[str, Known] = {
            name: value for name, value in zip(names, inputs, strict=False) if value is not None
        }
        bound = tuple(replace(inner, attributes=_bound(inner, operation)) for inner in body)
        self._evaluate(bound, known, depth + 1)
        missing = [name for name in results if name not in known]
        if missing:
            raise ModelError(
                f"{operation.where} is damaged: its output '{shown(missing[0])}' is not computed."
            )
        values: list[Value] = []
        for name in results:
            value = known[name]
            if isinstance(value, UnsupportedModel):
                raise value
            values.append(value)
        return tuple(values)


def _bound(inner: Operation, outer: Operation) -> dict[str, object]:
    """Return the attributes of a node in a function, with references to the caller's attributes resolved."""
    bound = {}
    for name, value in inner.attributes.items():
        if isinstance(value, Reference):
            if value.name in outer.attributes:
                bound[name] = outer.attributes[value.name]
        else:
            bound[name] = value
    return bound
