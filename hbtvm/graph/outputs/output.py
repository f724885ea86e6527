"""`OutputSpec`: labels, probabilities and scores as nodes over raw scores.

Raw scores (margins) are float64 of shape (n, O), with base score and divisor applied. The runtime uses this
module, so it needs numpy only. `hbtvm.runtime.native.epilogues` derives C epilogues from the nodes; numpy and
array libraries on GPUs evaluate them (`hbtvm.graph.outputs.arrays`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import prod
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
"""Names of nodes by names of outputs, in the order of lists for users."""

_WHAT = {
    "label": "class labels",
    "proba": "class probabilities",
    "raw": "raw scores",
    "decision": "a decision function",
    "score": "anomaly scores",
}

_PLAIN = frozenset(("uint8", "int8", "int16", "int32", "int64", "float32", "float64"))
"""Types of labels that every array library on GPUs can look up."""

_NO_LABEL = (
    "a row has no label: it has no neighbour within the radius, or a value that training did not have."
)
"""Front ends give such rows a position without a label."""


def _labels(stored: tuple[str, tuple[Any, ...]]) -> np.ndarray:
    dtype, values = stored
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
    """The results of a library's methods as functions of raw scores, float64 (n, O).

    Attributes
    ----------
    kind
        Kind of model.
    n_outputs
        Number of raw scores of a row, O.
    nodes
        Over an `Input` of the raw scores, by name:

        - ``"index"``: positions of labels in `classes`, width the number of targets; without `classes`, the
          labels themselves;
        - ``"response"``: ``predict`` of a regressor, a clusterer or a booster;
        - ``"proba"``: probabilities, of all targets side by side;
        - ``"raw"``: the result with ``raw_score=True`` (``output_margin=True``);
        - ``"decision"``: decision function;
        - ``"score"``: anomaly scores, ``score_samples``.

        A result is float32 if the last operation rounds to it.
    classes
        The labels of each target, in the order of their positions; empty without labels.
    label_dtype
        Type of the labels, or of the response, if `classes` is empty; None for the node's. Of a transformer
        that kernels compute: None for float64, ``"rows"`` for float32 results of float32 rows, or ``"int64"``
        for a column of integers, shape (n,).
    keeps_axis
        Whether results of one column have shape (n, 1), rather than (n,).
    finite
        The column of the scores that is NaN unless all numbers of a row are finite; None if there is none.
    container
        A transformer's result: an array, a sparse matrix (CSR), or with ``"rows"`` a sparse matrix if the
        rows are sparse, else an array.
    selects
        The columns that a selector keeps unchanged, in any type; empty for other models.
    shape
        Of a view (`hbtvm.graph.views`), the shape of a row's results, which `compute` returns side by side;
        empty for other models.
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
    shape: tuple[codec.Count, ...] = ()

    def __post_init__(self) -> None:
        # In a manifest's order: a package that is read and written again has the same bytes.
        object.__setattr__(self, "nodes", dict(sorted(self.nodes.items())))

    def validate(self) -> None:
        """Raise `ValueError` if fields do not fit each other."""
        if self.label_dtype not in (None, "rows") and not _is_number(self.label_dtype):
            raise ValueError(f"label_dtype is {self.label_dtype!r:.100}")
        if self.selects and len(self.selects) != self.n_outputs:
            raise ValueError(f"{len(self.selects)} columns are selected, not {self.n_outputs}")
        if self.shape and any(node.width != prod(self.shape) for node in self.nodes.values()):
            raise ValueError(f"nodes have not the width of results of shape {self.shape}")
        for name, node in self.nodes.items():
            if name not in ("response", *_NODES.values()):
                raise ValueError(f"nodes have the name {name!r:.40}")
            inputs = [leaf.width for leaf in in_order(node) if isinstance(leaf, Input)]
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
        """The library's outputs beside ``predict``."""
        return tuple(output for output, name in _NODES.items() if name in self.nodes)

    @property
    def predicts_labels(self) -> bool:
        """Whether ``predict`` returns labels."""
        return "index" in self.nodes

    def name_of(self, output: Output | None) -> str:
        """Return the name of an output's node; None stands for ``predict``."""
        if output is not None:
            return _NODES[output]
        return next((name for name in ("index", "response") if name in self.nodes), "score")

    def dtype_of(self, name: str) -> str:
        """Return the type of a node's results that are not labels of `classes`."""
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
        """Return whether the last bit of a power decides about rows on a threshold.

        Libraries differ in that bit, as in labels and decisions of isolation forests.
        """
        return name in ("index", "decision") and any(
            isinstance(node, Elementwise) and node.function == "power" for node in in_order(self.nodes[name])
        )

    def by_any_library(self, output: Output | None) -> bool:
        """Return whether other array libraries compute an output with the same values as numpy.

        Their arrays hold numbers only, and they lack some functions that undo a target's transform.
        """
        name = self.name_of(output)
        if name not in self.nodes or self.hangs_on_power(name) or not Arrays.known(self.nodes[name]):
            return False
        return name != "index" or all(table.dtype.name in _PLAIN for table in self.classes)

    def over(self, scores: Node) -> dict[str, Node]:
        """Return the nodes over the node of the raw scores."""
        replaced = rewrite(
            list(self.nodes.values()), lambda node: scores if isinstance(node, Input) else node
        )
        return dict(zip(self.nodes, replaced, strict=True))

    def compute(self, output: Output | None, raw: Any, arrays: Arrays = HOST) -> Any:
        """Return an output in the library's form.

        Parameters
        ----------
        output
            The output; None for ``predict``.
        raw
            Raw scores, float64, shape (n, O).
        arrays
            Operations of the array library of `raw` and of the result.

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
            if len(self.classes) > 1 or self.keeps_axis:
                return arrays.columns([labels[index[:, i]] for i, labels in enumerate(self.classes)])
            table = self.classes[0]
            return table.take(index[:, 0]) if arrays is HOST else table[index[:, 0]]
        except IndexError:
            raise InputError(_NO_LABEL) from None


def likeliest(response: Node) -> dict[str, Node]:
    """Return labels' positions and probabilities from the probabilities of all, or of the second of two."""
    if response.width == 1:
        return {"index": likelier(response), "proba": with_complement(response)}
    return {"index": reduce("argmax", response), "proba": response}


def unrounded(node: Node) -> Node:
    """Return a node without its rounding to float32; the node itself if it does not round."""
    while isinstance(node, Elementwise) and node.function == "round_float32":
        (node,) = node.operands
    return node


def columns(
    label_dtype: str | None, rows: str, keeps_axis: bool = False
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function from a kernel's scores, shape (n, columns), to the result of ``transform``.

    It returns the scores themselves if they have the right type.

    Parameters
    ----------
    label_dtype
        As `OutputSpec.label_dtype`: a type, ``"rows"`` for the rows' type, None for float64.
    rows
        The rows' type.
    keeps_axis
        Whether integers have shape (n, 1), as `OutputSpec.keeps_axis`.
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
