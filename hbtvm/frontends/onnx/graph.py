"""An ONNX graph evaluated symbolically: rows are operators over the input's columns, all else is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
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

_MOST_CONSTANTS = 1 << 26  # values of constants that evaluating a graph may make in all
_DEEPEST = 16  # operators of the model within one another

_REFOLDING = ("Reshape", "Identity", "Cast")
"""Operators that take `Rows.unfolded`; the first makes sense of it."""

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
    """A graph that is beyond a bound on all of its nodes."""


@dataclass
class _Budget:
    nodes: int = 200_000
    constants: int = _MOST_CONSTANTS
    columns: int = 1 << 20


class Evaluator:
    """Computes what a graph's names stand for."""

    def __init__(self, document: Document) -> None:
        self._document, self._budget = document, _Budget()

    def run(self, given: Mapping[str, Value]) -> dict[str, Known]:
        """The values of all names.

        `given`: those of the graph's inputs.
        An operator that is not supported stands as an `UnsupportedModel` in place of its values. Raises
        `UnsupportedModel` if the graph is too large, `ModelError` if it is damaged.
        """
        body = self._document.body
        known: dict[str, Known] = {**body.constants, **given}
        self._evaluate(body.operations, known, 0)
        return known

    def constants(self) -> dict[str, np.ndarray]:
        """The graph's constants, those included that are computed of constants alone."""
        known: dict[str, Known] = dict(self._document.body.constants)
        for one in self._document.body.operations:
            if all(name in known for name in one.inputs):
                self._evaluate((one,), known, 0)
        return {name: value for name, value in known.items() if isinstance(value, np.ndarray)}

    def _evaluate(self, operations: tuple[Operation, ...], known: dict[str, Known], depth: int) -> None:
        for one in operations:
            inputs: list[Value | None] = []
            failed: UnsupportedModel | None = None
            for name in one.inputs:
                if name and name not in known:
                    raise ModelError(
                        f"{one.where} is damaged: its input '{shown(name, 60)}' is not computed before."
                    )
                value = known[name] if name else None
                if isinstance(value, UnsupportedModel):
                    failed, value = value, None
                inputs.append(value)
            results: Sequence[Known] = ()
            if failed is None:
                try:
                    results = self._one(one, tuple(inputs), depth)
                except TooLarge:
                    raise
                except UnsupportedModel as error:
                    failed = error
            if failed is not None:
                results = [failed] * len(one.outputs)
            known |= {name: value for name, value in zip(one.outputs, results, strict=False) if name}

    def _one(self, operation: Operation, inputs: tuple[Value | None, ...], depth: int) -> tuple[Value, ...]:
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
        if any(isinstance(one, Rows) and one.unfolded for one in inputs) and key[1] not in _REFOLDING:
            raise UnsupportedModel(
                f"{operation.where} reads tensors joined row by row, which is not supported."
            )
        call = Call(operation, inputs, self._document.versions.get(operation.domain, 1))
        try:
            with np.errstate(all="ignore"):
                found = run(call)
        except (ModelError, UnsupportedModel):
            raise
        except (AttributeError, TypeError, KeyError, IndexError, ValueError, OverflowError) as error:
            text = shown(f"{type(error).__name__}: {error}", most=200)
            raise ModelError(
                f"{operation.where} is damaged, or not supported in this form: {text}."
            ) from error
        results = tuple(map(short, found)) if isinstance(found, tuple) else (short(found),)
        for value in results:
            if isinstance(value, np.ndarray):
                self._budget.constants -= value.size
            else:
                # Each column of a table is an object; nodes hold a few numbers for each.
                self._budget.columns -= value.width if isinstance(value.content, Table) else value.width // 16
        if self._budget.constants < 0:
            raise TooLarge("the ONNX graph computes too many constants.")
        if self._budget.columns < 0:
            raise TooLarge("the tensors of the ONNX graph have too many columns in all.")
        return results

    def _function(
        self, key: tuple[str, str], operation: Operation, inputs: tuple[Value | None, ...], depth: int
    ) -> tuple[Value, ...]:
        """An operator that the model defines itself."""
        if depth >= _DEEPEST:
            raise UnsupportedModel(f"{operation.where} is not supported: operators within operators.")
        names, results, body = self._document.functions[key]
        known: dict[str, Known] = {
            name: value for name, value in zip(names, inputs, strict=False) if value is not None
        }
        bound = tuple(replace(one, attributes=_bound(one, operation)) for one in body)
        self._evaluate(bound, known, depth + 1)
        missing = [name for name in results if name not in known]
        if missing:
            raise ModelError(
                f"{operation.where} is damaged: its output '{shown(missing[0])}' is not computed."
            )
        found: list[Value] = []
        for name in results:
            value = known[name]
            if isinstance(value, UnsupportedModel):
                raise value
            found.append(value)
        return tuple(found)


def _bound(inner: Operation, outer: Operation) -> dict[str, object]:
    """The attributes of a node in a function, with those of the caller where it asks for them."""
    found = {}
    for name, value in inner.attributes.items():
        if isinstance(value, Reference):
            if value.name in outer.attributes:
                found[name] = outer.attributes[value.name]
        else:
            found[name] = value
    return found
