"""`OutputSpec`: labels, probabilities and scores as each library computes them from raw scores.

Raw scores (margins) are float64 of shape (n, O), base score and divisor already
applied. The deployed runtime uses this module: numpy only, and few calls for one row.
Methods that take `arrays` (see `hbtvm.graph.outputs.arrays`) also compute with another library's
arrays: for raw scores in such an array they return such an array.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from hbtvm import codec
from hbtvm.errors import InputError
from hbtvm.graph.outputs import output_columns
from hbtvm.graph.outputs.arrays import HOST, Arrays
from hbtvm.graph.outputs.inverse import Inverse, undo
from hbtvm.graph.outputs.output_check import Labels, check
from hbtvm.graph.outputs.transforms import Transform, respond, softmax

Kind = Literal["classifier", "regressor", "ranker", "booster", "anomaly", "transformer", "clusterer"]
LabelRule = Literal[
    "argmax",
    "raw_argmax",
    "above_half",
    "each_above_half",
    "raw_positive",
    "each_raw_positive",
    "raw_not_negative",
    "side",
]
Output = Literal["label", "proba", "raw", "decision", "score"]
Dtype = Literal["float32", "float64"]
Container = Literal["array", "sparse", "rows"]

_WHAT = {
    "label": "class labels",
    "proba": "class probabilities",
    "raw": "raw scores",
    "decision": "a decision function",
    "score": "anomaly scores",
}


_PLAIN = frozenset(("uint8", "int8", "int16", "int32", "int64", "float32", "float64"))
"""Types of labels that every library for GPUs can look up."""


@dataclass(frozen=True, eq=False)
class OutputSpec:
    """How the values that a library's methods return follow from raw scores, float64 (n, O).

    Attributes
    ----------
    kind
        Kind of model.
    n_outputs
        Raw scores of a row, O.
    transform
        From raw scores to the response: ``"class_index"`` is the position of the largest,
        ``"hinge"`` 1 above 0, ``"isolation"`` scikit-learn's anomaly score, ``"one_vs_rest"`` sigmoids
        divided by their sum, ``"modified_huber"`` the probabilities of that loss, the others as named.
    scale
        Factor within the sigmoid, or what the mean depth is divided by in ``"isolation"``.
    dtype
        Type that the library computes and returns in.
    outputs
        What the library offers beside ``predict``, see `available`.
    classes
        The labels of each target, in the order of their scores; empty without labels.
    label_rule
        How a label is chosen: the class of the largest probability or raw score (the first of
        equals), the second class if the response is above one half (or every column by itself),
        or if the raw score is positive (or every column's by itself) or not negative, or the side of
        `offset`.
    label_dtype
        Type of the labels 0 and 1 where `classes` is empty; of what a transformer gives that kernels compute:
        None for float64, ``"rows"`` for float32 of float32 rows, or ``"int64"`` for one column of integers,
        shape (n,).
    raw_factor
        The library's raw score divided by ours (LightGBM's random forests return sums).
    offset
        Anomaly scores below this are outliers.
    keeps_axis
        Whether the response of one score is a column, shape (n, 1), rather than (n,).
    inverse
        What is done to the responses of a regressor that was trained on a transformed target.
    container
        What a transformer gives: an array, a sparse matrix (CSR), or with ``"rows"`` a sparse matrix if the
        rows are sparse, else an array.
    selects
        Of a selector, the columns that it keeps as they are, in any type; empty of anything else.
    slices
        With the transform ``"columns"``: which columns of the scores are which output, see
        `hbtvm.graph.outputs.output_columns`.
    """

    kind: Kind
    n_outputs: codec.Count
    transform: Transform = "identity"
    scale: codec.Finite = 1.0
    dtype: Dtype = "float64"
    outputs: tuple[Output, ...] = ()
    classes: tuple[Labels, ...] = ()
    label_rule: LabelRule | None = None
    label_dtype: str | None = None
    raw_factor: codec.Finite = 1.0
    offset: codec.Finite = 0.0
    keeps_axis: bool = False
    inverse: Inverse = ()
    container: Container = "array"
    selects: tuple[codec.Index, ...] = ()
    slices: output_columns.Slices = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.n_outputs < 2 and self.transform in ("softmax", "class_index"):
            raise ValueError(f"{self.transform} of {self.n_outputs} score, expected several")

    def validate(self) -> None:
        """Refuse fields that do not fit each other, with a `ValueError`."""
        check(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputSpec) and self._values() == other._values()

    def _values(self) -> list[Any]:
        values = [getattr(self, one.name) for one in fields(self) if one.name != "classes"]
        return [*values, *((labels.dtype.str, labels.tolist()) for labels in self.classes)]

    def __hash__(self) -> int:
        return hash((self.kind, self.n_outputs, self.transform, self.outputs, self.label_rule))

    def available(self) -> tuple[str, ...]:
        """Return the outputs beside ``predict`` that the library offers for this model."""
        return self.outputs

    def maker(self, output: Output | None) -> Callable[..., Any]:
        """Return the method that computes an output from raw scores and `arrays`; of None, `predict`."""
        if self.slices:
            made = output_columns.maker(self, output)
            # Of what there is not, the methods below raise the error.
            if made is not None:
                return made
        methods: dict[Output | None, Callable[..., Any]] = {
            None: self.predict,
            "label": self.labels,
            "proba": self.proba,
            "raw": self.raw,
            "decision": self.decision,
            "score": self.score,
        }
        return methods[output]

    def by_any_library(self, output: Output | None) -> bool:
        """Return whether another library's arrays give an output the same values as numpy.

        They do not hold labels other than numbers, nor have they all functions that undo a target's. Nor do
        they agree on labels and decisions of isolation forests: for rows on the threshold, the last bit of a
        power decides, in which libraries differ.
        """
        if self.inverse:
            return False
        if self.slices:
            return output_columns.by_any_library(self, output)
        labels = output == "label" or (output is None and self.label_rule is not None)
        if self.transform == "isolation" and (labels or output == "decision"):
            return False
        return not labels or all(table.dtype.name in _PLAIN for table in self.classes)

    def predict(self, raw: Any, arrays: Arrays = HOST) -> Any:
        """Return what the library's ``predict`` returns: labels of a classifier, else the response."""
        return self.labels(raw, arrays) if self.label_rule is not None else self.response(raw, arrays)

    def response(self, raw: Any, arrays: Arrays = HOST) -> Any:
        """Return the transformed scores.

        Returns
        -------
        `dtype`, shape (n, O); (n,) with one score, unless `keeps_axis`, or with ``"class_index"``.
        """
        values = self._transformed(raw, arrays)
        return undo(values, self.inverse) if self.inverse else values

    def _transformed(self, raw: Any, arrays: Arrays) -> Any:
        if self.n_outputs == 1:
            raw = raw[:, 0]
        values = arrays.cast(raw, self.dtype)
        response = respond(self.transform, values, self.scale, self.dtype, arrays)
        return response[:, None] if self.keeps_axis else response

    def proba(self, raw: Any, arrays: Arrays = HOST) -> Any:
        """Return what the library's ``predict_proba`` returns.

        Returns
        -------
        `dtype`, shape (n, classes), or a list of such arrays, one for each target.

        Raises
        ------
        InputError
            If the model has no probabilities.
        """
        self._require("proba")
        if len(self.classes) > 1:
            return self._split(raw, arrays)
        if self.transform == "class_index":
            return softmax(arrays.cast(raw, self.dtype), arrays)
        response = self.response(raw, arrays)
        if self.n_outputs > 1:
            return response
        if self._is_single_class():
            return response[:, None]
        return arrays.columns([1.0 - response, response])

    def labels(self, raw: Any, arrays: Arrays = HOST) -> Any:
        """Return what a classifier's ``predict`` returns (-1 and 1 from an anomaly detector).

        Returns
        -------
        Labels in the type of `classes`, shape (n,), or (n, targets) with more than one target.

        Raises
        ------
        InputError
            If the model has no labels.
        """
        self._require("label")
        if self.label_rule == "side":
            return 1 - 2 * arrays.cast(self.score(raw, arrays) < self.offset, "int64")
        if len(self.classes) > 1:
            shares = zip(self.classes, self._split(raw, arrays), strict=True)
            return arrays.columns([labels[arrays.argmax(share)] for labels, share in shares])
        index = self._label_index(raw, arrays)
        return self.classes[0][index] if self.classes else arrays.cast(index, str(self.label_dtype))

    def decision(self, raw: Any, arrays: Arrays = HOST) -> Any:
        """Return what the library's ``decision_function`` returns: float64, (n, O) or (n,) if O is 1.

        Raises
        ------
        InputError
            If the model has no decision function.
        """
        self._require("decision")
        if self.transform == "isolation":
            return self.score(raw, arrays) - self.offset
        return self._own_raw(raw, arrays)

    def score(self, raw: Any, arrays: Arrays = HOST) -> Any:
        """Return what ``IsolationForest.score_samples`` returns: float64, shape (n,).

        Raises
        ------
        InputError
            If the model gives no anomaly scores.
        """
        self._require("score")
        return self.response(raw, arrays)

    def raw(self, raw: Any, arrays: Arrays = HOST) -> Any:
        """Return what ``raw_score=True`` (``output_margin=True``) does: `dtype`, (n, O) or (n,) if O is 1.

        Raises
        ------
        InputError
            If the library offers no raw scores for the model.
        """
        self._require("raw")
        return self._own_raw(raw, arrays)

    def _own_raw(self, raw: Any, arrays: Arrays) -> Any:
        """Return raw scores as the library scales and shapes them."""
        if self.n_outputs == 1:
            raw = raw[:, 0]
        if self.raw_factor != 1.0:
            raw = raw * self.raw_factor
        return arrays.cast(raw, self.dtype)

    def _label_index(self, raw: Any, arrays: Arrays) -> Any:
        """Return positions of labels in `classes`: int64, (n,), or (n, O) where each column has its own."""
        match self.label_rule:
            case "raw_positive":
                second = raw[:, 0] > 0
            case "raw_not_negative":
                second = raw[:, 0] >= 0
            case "each_raw_positive":
                second = raw > 0
            case "above_half" | "each_above_half":
                second = self.response(raw, arrays) > 0.5
            case "raw_argmax":
                return arrays.argmax(raw)
            case _ if self.transform == "class_index":
                return arrays.argmax(arrays.cast(raw, self.dtype))
            case _ if self.transform == "sigmoid" and self.n_outputs == 1:
                # As argmax of (1 - p, p), the first of equals, without stacking the two.
                response = self.response(raw, arrays)
                second = response > 1.0 - response
            case _:
                return arrays.argmax(self.proba(raw, arrays))
        return arrays.cast(second, "int64")

    def _split(self, raw: Any, arrays: Arrays) -> list[Any]:
        """Return the scores of each target, `dtype`, shape (n, classes)."""
        ends = list(itertools.accumulate(map(len, self.classes)))
        values = arrays.cast(raw, self.dtype)
        return [values[:, start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _is_single_class(self) -> bool:
        return len(self.classes) == 1 and len(self.classes[0]) == 1 and self.transform == "identity"

    def _require(self, output: Output) -> None:
        if output not in self.outputs:
            has = ", ".join(self.outputs) or "only its prediction"
            raise InputError(f"this {self.kind} has no {_WHAT[output]} ({output!r}); it has: {has}.")
