"""A served model: its inputs, outputs and predictions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hbtvm import __version__
from hbtvm.errors import InputError
from hbtvm.graph.outputs.output import Output
from hbtvm.runtime.explaining.contributions import (
    CONTRIBUTIONS,
    contribution_names,
    contributions,
    has_contributions,
)
from hbtvm.runtime.model import Model, load
from hbtvm.runtime.package.trust import ANY, Trust
from hbtvm.serving.datatypes import name_of
from hbtvm.serving.messages import Request
from hbtvm.serving.plain.rows import JsonRows, RowsRequest
from hbtvm.serving.tensors import Tensor, TensorRows

if TYPE_CHECKING:
    from hbtvm.serving.plain.structures import StructureRows

PREDICT = "predict"
_METHODS: dict[Output, str] = {
    "label": "predict_label",
    "proba": "predict_proba",
    "raw": "raw_score",
    "decision": "decision_function",
    "score": "score_samples",
}
"""Names of outputs besides ``predict``: the library's methods, if they exist."""

_TRANSFORM = "transform"


class Inline(NamedTuple):
    """Limits of requests that the event loop answers itself."""

    tensors: int = 0  # rows and outputs of a request of tensors
    rows: int = 0  # rows and outputs of a request in plain JSON; of structures, bytes


class Served:
    """A loaded model.

    Parameters
    ----------
    name
        The model's name for clients.
    path
        Path of the package.
    threads, device
        As for `hbtvm.load`.
    version
        Version of the file's current state, for clients.
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
    rows, structures
        Reader of rows in plain JSON; of a recursive model, reader of structures, else None.
    inline
        Limits of requests that the event loop answers itself.

    Raises
    ------
    PackageError, DeviceError
        If it can't be loaded, see `hbtvm.load`.
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
        self.head = {"model_name": name, "model_version": version}
        self.inline = Inline()
        self.rows = JsonRows(self.model)
        self.structures = _structures(self.model)
        self._tensors = TensorRows(self.model)
        self.inputs = self._tensors.tensors if self.structures is None else ()
        self._outputs = _outputs(self.model)
        self._first = next(iter(self._outputs))
        self._usual = tuple(
            name for name in self._outputs if name == self._first or name.startswith(_METHODS["proba"])
        )
        self._described = {name: _tensor(self.model, name, item) for name, item in self._outputs.items()}
        self.outputs = tuple(self._described.values())

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
        return self._tensors.flat(tensors)

    def is_inline(self, request: Request | RowsRequest) -> bool:
        """Return whether the event loop may answer a request itself."""
        if isinstance(request, RowsRequest):
            if self.structures is not None:
                return request.size <= self.inline.rows
            return len(request.rows) * (len(request.outputs) or len(self._usual)) <= self.inline.rows
        first = next(iter(request.tensors.values()))
        rows = first.size if self._tensors.values else len(first)
        return rows * (len(request.wanted) or 1) <= self.inline.tensors

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
        if self.structures is not None:
            raise InputError(
                f"{self.name} takes trees or graphs, which are not tensors; send them as "
                f'{{"rows": [...]}} to /v2/models/{self.name}/predict.'
            )
        rows = self._tensors.of(request.tensors)
        if not request.wanted:
            return [(self._first, self._outputs[self._first].of(rows), request.binary)]
        return [(wanted.name, self._output(wanted.name).of(rows), wanted.binary) for wanted in request.wanted]

    def outputs_of(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return names of requested outputs; without any, the prediction and probabilities.

        Raises `InputError` if the model has no such output.
        """
        for name in names:
            self._output(name)
        return tuple(names) or self._usual

    def compute(self, name: str, rows: Any) -> np.ndarray:
        """Return an output of rows as `hbtvm.Model.predict` takes them.

        Raises `InputError` if the rows don't fit the model.
        """
        return self._outputs[name].of(rows)

    def tensor(self, name: str) -> Tensor:
        """Return an output's description."""
        return self._described[name]

    def _output(self, name: str) -> _Output:
        output = self._outputs.get(name)
        if output is None:
            known = ", ".join(self._outputs)
            raise InputError(f"{self.name} has no output {name!r:.80}; it has: {known}.")
        return output


def _structures(model: Model) -> StructureRows | None:
    """Return the reader of a recursive model's structures."""
    entry = model.package.recursion
    if entry is None:
        return None
    # Other models do without the modules of recursive models.
    from hbtvm.serving.plain.structures import StructureRows

    return StructureRows(entry)


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
    if has_contributions(model):
        outputs[CONTRIBUTIONS] = _Output(contributions(model).predict)
    return outputs


def _tensor(model: Model, name: str, output: _Output) -> Tensor:
    """Return an output's metadata."""
    if name == _TRANSFORM and model.beside is not None:
        model = model.beside
    elif output.output == "score" and model.scores is not None:
        model = model.scores
    if name == CONTRIBUTIONS:
        columns = contribution_names(model)
        return Tensor(name, name_of(np.dtype(np.float64)), len(columns), columns)
    example = model.example(output.output)
    probe = np.asarray(example if output.target is None else example[output.target])
    labels: list[str] = []
    if output.output == "proba":
        labels = [str(label) for label in model.package.output.classes[output.target or 0].tolist()]
    return Tensor(name, name_of(probe.dtype), probe.shape[1] if probe.ndim > 1 else None, labels)
