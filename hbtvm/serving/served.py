"""A served model: inputs and outputs as tensors, and predictions."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hbtvm import __version__
from hbtvm.errors import InputError
from hbtvm.graph.outputs.output import Output
from hbtvm.runtime.feeds.file_columns import columns_of
from hbtvm.runtime.model import Model, load
from hbtvm.runtime.package.trust import ANY, Trust
from hbtvm.serving.datatypes import BYTES, name_of
from hbtvm.serving.messages import Request

PREDICT = "predict"
INPUT = "input"
"""The tensor of all columns of a numeric model."""

_METHODS: dict[Output, str] = {
    "label": "predict_label",
    "proba": "predict_proba",
    "raw": "raw_score",
    "decision": "decision_function",
    "score": "score_samples",
}
"""Names of outputs besides ``predict``: the library's methods, if they exist."""

_TRANSFORM = "transform"

_TABLE_CELLS = 1 << 12
"""Minimal number of values for which rows become a table rather than dicts, if pyarrow is installed."""


@dataclass(frozen=True)
class Tensor:
    """An input or an output.

    Attributes
    ----------
    name, datatype
        Name and datatype in requests.
    width
        Columns; None for a vector.
    """

    name: str
    datatype: str
    width: int | None

    def metadata(self) -> dict[str, Any]:
        """Return the protocol's metadata; -1 stands for any number of rows."""
        shape = [-1] if self.width is None else [-1, self.width]
        return {"name": self.name, "datatype": self.datatype, "shape": shape}


class Served:
    """A loaded model with its tensors.

    Parameters
    ----------
    name
        The model's name for clients.
    path
        Path of the package.
    threads, device
        As for `hbtvm.load`.
    version
        The version of the file's current state, for clients.
    trust
        Required hash or signature of the file.

    Attributes
    ----------
    model
        The model.
    inputs, outputs
        Tensors in the metadata.
    head
        Start of each response.
    inline_rows
        Maximal rows of a request that the event loop predicts itself.

    Raises
    ------
    PackageError, DeviceError
        If it can't be loaded, see `hbtvm.load`.
    InputError
        If the package is for structures, which are not tensors.
    """

    def __init__(
        self,
        name: str,
        path: str | os.PathLike[str],
        threads: int | None = None,
        device: str | None = None,
        version: str = "1",
        trust: Trust = ANY,
    ) -> None:
        self.name, self.path, self.version = name, os.fspath(path), version
        self.model = load(
            path,
            threads=threads,
            device=device,
            sha256=trust.sha256,
            allowed_signers=trust.allowed_signers,
        )
        package = self.model.package
        if package.recursion is not None:
            raise InputError(f"{self.path}: this model takes trees or graphs, which are not tensors.")
        self.head = {"model_name": name, "model_version": version}
        self.inline_rows = 0
        self._rows = _Rows(self.model)
        self.inputs = self._rows.tensors
        self._outputs = _outputs(self.model)
        self._first = next(iter(self._outputs))
        self.outputs = tuple(_tensor(self.model, *item) for item in self._outputs.items())

    def metadata(self) -> dict[str, Any]:
        """Return the protocol's metadata of a model."""
        package = self.model.package
        return {
            "name": self.name,
            "versions": [self.version],
            "platform": "hbtvm",
            "inputs": [tensor.metadata() for tensor in self.inputs],
            "outputs": [tensor.metadata() for tensor in self.outputs],
            "parameters": {
                "library": package.library,
                "model": package.model,
                "hbtvm": __version__,
                "target": package.target["kind"],
            },
        }

    def flat(self, tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return tensors whose first axis is the rows, also if a tensor has one row per value."""
        return self._rows.flat(tensors)

    def rows(self, request: Request) -> int:
        """Return the number of rows to compute for a request, for each of its outputs."""
        first = next(iter(request.tensors.values()))
        rows = first.size if self._rows.values else len(first)
        return rows * (len(request.wanted) or 1)

    def infer(self, request: Request) -> list[tuple[str, np.ndarray, bool]]:
        """Compute a request's outputs.

        Returns
        -------
        Names, values, and whether they follow the response's JSON.

        Raises
        ------
        InputError
            If the tensors don't fit the model, or it has no such output.
        """
        rows = self._rows.of(request.tensors)
        if not request.wanted:
            return [(self._first, self._outputs[self._first].of(rows), request.binary)]
        results = []
        for wanted in request.wanted:
            output = self._outputs.get(wanted.name)
            if output is None:
                known = ", ".join(self._outputs)
                raise InputError(f"{self.name} has no output {wanted.name!r:.80}; it has: {known}.")
            results.append((wanted.name, output.of(rows), wanted.binary))
        return results


class _Rows:
    """Converts a request's tensors to a model's rows."""

    def __init__(self, model: Model) -> None:
        spec = model.package.input
        names = spec.feature_names
        self._known = None if names is None else frozenset(names)
        self._only: str | None = None
        reader = model.pipeline
        if spec.rows_are_values:
            self.tensors: tuple[Tensor, ...] = (Tensor(INPUT, BYTES, None),)
            self.values = True
            return
        self.values = False
        read: Sequence[int]
        if reader is None:
            texts = {at for at, known in (spec.categories or {}).items() if _has_texts(known)}
            read = range(spec.n_features)
        else:
            pipeline = columns_of(reader)
            texts = {pipeline.of[at] for at, known in pipeline.spec.categories.items() if _has_texts(known)}
            read = pipeline.of
        self._wide = spec.n_features
        # A model compiled for float32 only refuses float64 values that float32 does not hold.
        number = "FP32" if model.package.row_dtypes == ("float32",) else "FP64"
        if not texts:
            self.tensors = (Tensor(INPUT, number, spec.n_features),)
        elif names is None:
            self.tensors = (Tensor(INPUT, BYTES, spec.n_features),)
        else:
            self.tensors = tuple(
                Tensor(names[at], BYTES if at in texts else number, 1) for at in sorted(set(read))
            )

    def flat(self, tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """See `Served.flat`."""
        return {name: only.reshape(-1) for name, only in tensors.items()} if self.values else tensors

    def of(self, tensors: Mapping[str, np.ndarray]) -> Any:
        """Return the rows: a matrix, a dict of a single row's values, or a table."""
        if len(tensors) == 1:
            ((name, only),) = tensors.items()
            if self.values:
                return only.reshape(-1)
            if self._known is None or name not in self._known:
                if only.ndim != 2:
                    raise InputError(
                        f"input {name!r}: its shape is {list(only.shape)}, expected [rows, {self._wide}]."
                    )
                return only
        if self.values:
            raise InputError(f"there are {len(tensors)} inputs, expected one.")
        if self._known is None:
            raise InputError(
                f"there are {len(tensors)} inputs, expected one of shape [rows, {self._wide}]: this model "
                "was trained without column names."
            )
        return self._table(tensors)

    def _table(self, tensors: Mapping[str, np.ndarray]) -> Any:
        columns, rows = {}, None
        for name, column in tensors.items():
            if column.ndim == 2 and column.shape[1] != 1:
                raise InputError(
                    f"input {name!r}: its shape is {list(column.shape)}, expected [rows, 1], a column."
                )
            if rows is not None and len(column) != rows:
                raise InputError(f"input {name!r} has {len(column):,} rows, others have {rows:,}.")
            rows = len(column)
            columns[name] = column.reshape(-1)
        assert rows is not None
        if rows == 1:
            return {name: column.tolist()[0] for name, column in columns.items()}
        if rows * len(columns) >= _TABLE_CELLS and _arrow is not None:
            return _arrow.table({name: _arrow.array(column) for name, column in columns.items()})
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in values]


def _import_arrow() -> Any:
    try:
        return importlib.import_module("pyarrow")
    except ImportError:
        return None


_arrow = _import_arrow()


def _has_texts(values: Any) -> bool:
    return any(isinstance(value, str) for value in values)


@dataclass(frozen=True)
class _Output:
    """An output that clients may request.

    Attributes
    ----------
    call
        Function from rows to values.
    output
        The `output` of `hbtvm.Model.predict`.
    target
        Index of the target, if several have their own probabilities.
    """

    call: Callable[[Any], Any]
    output: Output | None = None
    target: int | None = None

    def of(self, rows: Any) -> np.ndarray:
        """Return its values as a dense array."""
        result = self.call(rows)
        if self.target is not None:
            result = result[self.target]
        if isinstance(result, np.ndarray):
            return result
        return np.asarray(result.toarray() if hasattr(result, "toarray") else result)


def _outputs(model: Model) -> dict[str, _Output]:
    """Return outputs by name; the first is the default."""
    spec = model.package.output
    if model.package.transforms:
        outputs = {_TRANSFORM: _Output(model.transform)}
        if model.scores is not None:
            outputs[_METHODS["score"]] = _Output(model.score_samples, "score")
        return outputs
    outputs = {PREDICT: _Output(model.predict)}
    for output in spec.outputs:
        name, call = _METHODS[output], partial(model.predict, output=output)
        if output == "proba" and len(spec.classes) > 1:
            outputs |= {f"{name}_{i}": _Output(call, output, i) for i in range(len(spec.classes))}
        elif output != "label" or not spec.predicts_labels:
            outputs[name] = _Output(call, output)
    if model.beside is not None:
        outputs[_TRANSFORM] = _Output(model.beside.transform)
    return outputs


def _tensor(model: Model, name: str, output: _Output) -> Tensor:
    """Return an output's metadata."""
    if name == _TRANSFORM and model.beside is not None:
        model = model.beside
    elif output.output == "score" and model.scores is not None:
        model = model.scores
    example = model.example(output.output)
    probe = np.asarray(example if output.target is None else example[output.target])
    return Tensor(name, name_of(probe.dtype), probe.shape[1] if probe.ndim > 1 else None)
