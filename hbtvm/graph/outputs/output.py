"""`OutputSpec`: labels, probabilities and scores as nodes over raw scores.

Raw scores (margins) are float64 of shape (n, O), base score and divisor already applied. The deployed runtime
uses this module: numpy only. `hbtvm.runtime.native.epilogues` derives C epilogues from the nodes; numpy and
libraries of arrays on GPUs evaluate them (`hbtvm.graph.outputs.arrays`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

import numpy as np

from hbtvm import codec
from hbtvm.codec import Scalar, Via
from hbtvm.errors import InputError
from hbtvm.graph.outputs.arrays import HOST, Arrays
from hbtvm.operators.base import Constant, Input, Node, in_order, rewrite
from hbtvm.operators.coupling import Coupling
from hbtvm.operators.formulas import likelier, with_complement
from hbtvm.operators.pointwise import Elementwise
from hbtvm.operators.shapes import Concat, Reduce, Select, reduce

Kind = Literal["classifier", "regressor", "ranker", "booster", "anomaly", "transformer", "clusterer"]
Output = Literal["label", "proba", "raw", "decision", "score"]
Container = Literal["array", "sparse", "rows"]

codec.share(Node, Input, Constant, Elementwise, Select, Concat, Reduce, Coupling)

_NODES: Mapping[Output, str] = {
    "label": "index",
    "proba": "proba",
    "raw": "raw",
    "decision": "decision",
    "score": "score",
}
"""Names of nodes by those of outputs, in the order in which they are listed to users."""

_WHAT = {
    "label": "class labels",
    "proba": "class probabilities",
    "raw": "raw scores",
    "decision": "a decision function",
    "score": "anomaly scores",
}

_PLAIN = frozenset(("uint8", "int8", "int16", "int32", "int64", "float32", "float64"))
"""Types of labels that every library for GPUs can look up."""

_NO_LABEL = (
    "a row has no label: there is no neighbour of it within the radius, or a value is none of those of "
    "training."
)
"""Front ends give such rows a position that no label has."""


def _labels(given: tuple[str, tuple[Any, ...]]) -> np.ndarray:
    dtype, values = given
    if not re.fullmatch(r"[<|=]?[biufUO]\d{0,4}", dtype):
        raise ValueError(f"labels are of type {dtype!r:.40}")
    try:
        return np.array(values, dtype)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"labels of type {dtype} are {values!r:.100}") from None


Labels = Annotated[
    np.ndarray,
    Via(tuple[str, tuple[Scalar, ...]], lambda labels: (labels.dtype.str, labels.tolist()), _labels),
]
"""Labels, shape (n,), of any type."""


@dataclass(frozen=True, eq=False)
class OutputSpec:
    """How the values that a library's methods return follow from raw scores, float64 (n, O).

    Attributes
    ----------
    kind
        Kind of model.
    n_outputs
        Raw scores of a row, O.
    nodes
        Over an `Input` of the raw scores, by name:

        - ``"index"``: positions of labels in `classes`, width the number of targets; without `classes`, the
          labels themselves;
        - ``"response"``: what a regressor's, a clusterer's or a booster's ``predict`` returns;
        - ``"proba"``: probabilities, those of all targets side by side;
        - ``"raw"``: what ``raw_score=True`` (``output_margin=True``) returns;
        - ``"decision"``: decision function;
        - ``"score"``: anomaly scores, ``score_samples``.

        The library returns float32 where the last operation rounds to it.
    classes
        The labels of each target, in the order of their positions; empty without labels.
    label_dtype
        Type of the labels, or of the response, where `classes` is empty; None for the node's. Of what a
        transformer gives that kernels compute: None for float64, ``"rows"`` for float32 of float32 rows, or
        ``"int64"`` for one column of integers, shape (n,).
    keeps_axis
        Whether results of one column have shape (n, 1), rather than (n,).
    finite
        The column of the scores that is NaN unless all numbers of a row are finite; None if there is none.
    container
        What a transformer gives: an array, a sparse matrix (CSR), or with ``"rows"`` a sparse matrix if the
        rows are sparse, else an array.
    selects
        Of a selector, the columns that it keeps as they are, in any type; empty of anything else.
    """

    kind: Kind
    n_outputs: codec.Count
    nodes: Mapping[str, Node] = field(default_factory=dict)
    classes: tuple[Labels, ...] = ()
    label_dtype: str | None = None
    keeps_axis: bool = False
    finite: codec.Index | None = None
    container: Container = "array"
    selects: tuple[codec.Index, ...] = ()

    def __post_init__(self) -> None:
        # As a manifest orders fields: a package that is read and written again has the same bytes.
        object.__setattr__(self, "nodes", dict(sorted(self.nodes.items())))

    def validate(self) -> None:
        """Refuse fields that do not fit each other, with a `ValueError`."""
        if self.label_dtype not in (None, "rows") and not _is_number(self.label_dtype):
            raise ValueError(f"label_dtype is {self.label_dtype!r:.100}")
        if self.selects and len(self.selects) != self.n_outputs:
            raise ValueError(f"{len(self.selects)} columns are selected, not {self.n_outputs}")
        for name, node in self.nodes.items():
            if name not in ("response", *_NODES.values()):
                raise ValueError(f"nodes have the name {name!r:.40}")
            inputs = [one.width for one in in_order(node) if isinstance(one, Input)]
            if any(width != self.n_outputs for width in inputs):
                raise ValueError(f"nodes of {inputs} scores, not {self.n_outputs}")
        counts = [len(labels) for labels in self.classes]
        for name, width, holds in (("index", len(counts), counts), ("proba", sum(counts), counts[1:])):
            if holds and name in self.nodes and self.nodes[name].width != width:
                raise ValueError(f"nodes: {name} has {self.nodes[name].width} columns, not {width}")
        if self.finite is not None and self.finite >= self.n_outputs:
            raise ValueError(f"finite is {self.finite} of {self.n_outputs}")

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs that the library offers beside ``predict``."""
        return tuple(output for output, name in _NODES.items() if name in self.nodes)

    @property
    def predicts_labels(self) -> bool:
        """Whether ``predict`` returns labels."""
        return "index" in self.nodes

    def name_of(self, output: Output | None) -> str:
        """Return the name of an output's node; None is what ``predict`` returns."""
        if output is not None:
            return _NODES[output]
        return next((name for name in ("index", "response") if name in self.nodes), "score")

    def dtype_of(self, name: str) -> str:
        """Return the type of a node's results, unless they are labels of `classes`."""
        if name == "index" or (name == "response" and self.label_dtype is not None):
            return self.label_dtype or "int64"
        return "float64" if unrounded(self.nodes[name]) is self.nodes[name] else "float32"

    def is_flat(self, name: str) -> bool:
        """Return whether a node's results have shape (n,)."""
        return self.nodes[name].width == 1 and name != "proba" and not self.keeps_axis

    def is_split(self, name: str) -> bool:
        """Return whether results are a list of arrays, one for each target."""
        return name == "proba" and len(self.classes) > 1

    def hangs_on_power(self, name: str) -> bool:
        """Return whether the last bit of a power decides about rows on a threshold: libraries differ in it.

        So it is with labels and decisions of isolation forests.
        """
        return name in ("index", "decision") and any(
            isinstance(node, Elementwise) and node.function == "power" for node in in_order(self.nodes[name])
        )

    def by_any_library(self, output: Output | None) -> bool:
        """Return whether another library's arrays give an output the same values as numpy.

        They do not hold labels other than numbers, nor have they all functions that undo a target's.
        """
        name = self.name_of(output)
        if name not in self.nodes or self.hangs_on_power(name) or not Arrays.known(self.nodes[name]):
            return False
        return name != "index" or all(table.dtype.name in _PLAIN for table in self.classes)

    def over(self, scores: Node) -> dict[str, Node]:
        """Return the nodes over what computes the raw scores."""
        replaced = rewrite(
            list(self.nodes.values()), lambda node: scores if isinstance(node, Input) else node
        )
        return dict(zip(self.nodes, replaced, strict=True))

    def compute(self, output: Output | None, raw: Any, arrays: Arrays = HOST) -> Any:
        """Return an output as the library does.

        Parameters
        ----------
        output
            Which; None for what ``predict`` returns.
        raw
            Raw scores, float64, shape (n, O).
        arrays
            Operations on arrays of `raw`'s library, of which the result is.

        Returns
        -------
        Shape (n,) or (n, columns); for probabilities of several targets a list of such arrays.

        Raises
        ------
        InputError
            If the model has no such output, or a row no label.
        """
        name = self.name_of(output)
        if name not in self.nodes:
            has = ", ".join(self.outputs) or "only its prediction"
            raise InputError(
                f"this {self.kind} has no {_WHAT[output or 'score']} ({output!r}); it has: {has}."
            )
        node = self.nodes[name]
        if name == "index" and self.classes:
            return self._looked_up(arrays.cast(arrays.values(node, raw), "int64"), arrays)
        dtype = self.dtype_of(name)
        values = arrays.cast(arrays.values(unrounded(node) if dtype == "float32" else node, raw), dtype)
        if self.is_split(name):
            ends = accumulate((len(labels) for labels in self.classes), initial=0)
            return [values[:, start:stop] for start, stop in pairwise(ends)]
        return values[:, 0] if self.is_flat(name) else values

    def _looked_up(self, index: Any, arrays: Arrays) -> Any:
        try:
            if len(self.classes) > 1:
                return arrays.columns([labels[index[:, i]] for i, labels in enumerate(self.classes)])
            table = self.classes[0]
            return table.take(index[:, 0]) if arrays is HOST else table[index[:, 0]]
        except IndexError:
            raise InputError(_NO_LABEL) from None


def likeliest(response: Node) -> dict[str, Node]:
    """Return positions and probabilities of labels from the probabilities of all, or of the second of two."""
    if response.width == 1:
        return {"index": likelier(response), "proba": with_complement(response)}
    return {"index": reduce("argmax", response), "proba": response}


def unrounded(node: Node) -> Node:
    """Return what a node rounds to float32; the node itself if it does not."""
    while isinstance(node, Elementwise) and node.function == "round_float32":
        (node,) = node.operands
    return node


def columns(
    label_dtype: str | None, rows: str, keeps_axis: bool = False
) -> Callable[[np.ndarray], np.ndarray]:
    """The function from a kernel's scores, shape (n, columns), to what ``transform`` returns.

    It returns the scores themselves where they are of the right type.

    Parameters
    ----------
    label_dtype
        As `OutputSpec.label_dtype` says: a type, ``"rows"`` for that of the rows, None for float64.
    rows
        The rows' type.
    keeps_axis
        Whether integers are columns, as `OutputSpec.keeps_axis` says.
    """
    if label_dtype == "int64" and keeps_axis:
        return lambda scores: scores.astype(np.int64)
    if label_dtype == "int64":
        return lambda scores: scores[:, 0].astype(np.int64)
    kind = np.dtype(
        "float32" if "float32" in (label_dtype, rows if label_dtype == "rows" else "") else "float64"
    )

    def typed(scores: np.ndarray) -> np.ndarray:
        if scores.dtype == kind:
            return scores
        with np.errstate(over="ignore"):
            return scores.astype(kind)

    return typed


def _is_number(dtype: str) -> bool:
    try:
        return np.dtype(dtype).kind in "biuf"
    except (TypeError, ValueError, SyntaxError):
        return False
