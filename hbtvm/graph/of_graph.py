"""From a model that was read as anchor and output specification to operators."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np

from hbtvm.graph.columns.table import Table
from hbtvm.graph.compose import as_read
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.network import Linear, TableRows, Trees
from hbtvm.graph.outputs.inverse import Inverse
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.predictor import Predictor
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.operators.base import Node, constant
from hbtvm.operators.formulas import shares, softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import concat, reduce, select

_NAMES = {"fabs": "absolute"}
_FACTORS = dict.fromkeys(("deg2rad", "radians"), np.pi / 180) | dict.fromkeys(
    ("rad2deg", "degrees"), 180 / np.pi
)
"""Functions of numpy by which targets are transformed, where operators call them otherwise, or multiply."""


def predictor_of(graph: Graph, table: Table) -> Predictor:
    """The operators of a model over the table that it reads.

    Parameters
    ----------
    graph
        A bare model: no feeds.
    table
        As many columns as the model has features.

    Raises
    ------
    ValueError
        If its anchor is another kind of thing.
    """
    rows = TableRows(as_read(table, graph), graph.input.allow_nan, graph.input.allow_inf)
    scores = _scores(graph, rows)
    if isinstance(scores, Trees):
        return of_trees(scores, graph.output)
    return _Outputs(graph.output, scores).predictor()


def outputs_of(spec: OutputSpec, scores: Node) -> Predictor:
    """The operators by which outputs follow from raw scores."""
    return _Outputs(spec, scores).predictor()


def of_trees(trees: Trees, spec: OutputSpec) -> Predictor:
    """The operators by which outputs follow from a forest's scores."""
    return replace(_Outputs(spec, trees).predictor(), trees=trees, spec=spec)


def _scores(graph: Graph, rows: TableRows) -> Node:
    """Raw scores, base score and divisor applied."""
    anchor = graph.anchor
    if isinstance(anchor, TreeEnsemble):
        return Trees(rows, anchor)
    if isinstance(anchor, Linear):
        product = Contract(rows, anchor.sums.weight).checked()
        return apply("add", product, anchor.base_score) if anchor.base_score.any() else product
    raise ValueError(f"no operators for {type(anchor).__name__}")


class _Outputs:
    """What `OutputSpec` computes of raw scores, as nodes; method by method."""

    def __init__(self, spec: OutputSpec, raw: Node) -> None:
        self.spec, self.raw = spec, raw
        self.response = undone(self._response(), spec.inverse)

    def predictor(self) -> Predictor:
        spec = self.spec
        outputs: dict[str, Node] = {}
        if "label" in spec.outputs or spec.label_rule is not None:
            outputs["index"] = self._index()
        else:
            outputs["response"] = self.response
        if "proba" in spec.outputs:
            outputs["proba"] = self._proba()
        if "score" in spec.outputs:
            outputs["score"] = self.response
        if "decision" in spec.outputs:
            outputs["decision"] = self._decision()
        keeps_axis = spec.keeps_axis or any(name == "column" for name, _ in spec.inverse)
        label_dtype = spec.label_dtype
        if label_dtype is None and spec.dtype == "float32" and "response" in outputs:
            label_dtype = "float32"
        return Predictor(spec.kind, outputs, spec.classes, keeps_axis, label_dtype)

    def _rounded(self, values: Node) -> Node:
        return apply("round_float32", values) if self.spec.dtype == "float32" else values

    def _response(self) -> Node:
        raw, scale = self.raw, self.spec.scale
        match self.spec.transform:
            case "identity":
                result = raw
            case "sigmoid":
                result = self._sigmoid()
            case "softmax":
                result = softmax(raw)
            case "exp":
                result = apply("exp", raw)
            case "softplus":
                result = apply("log1p", apply("exp", raw))
            case "signed_square":
                result = apply("multiply", apply("multiply", apply("sign", raw), raw), raw)
            case "hinge":
                result = apply("greater", raw, 0.0)
            case "class_index":
                result = reduce("argmax", raw)
            case "isolation":
                # A forest of one sample has no depth to divide by.
                power = apply("negative", apply("divide", raw, scale)) if scale else constant(-1.0)
                result = apply("negative", apply("power", 2.0, power))
            case "one_vs_rest":
                result = shares(self._sigmoid())
            case "modified_huber":
                cut = apply("maximum", apply("minimum", raw, 1.0), -1.0)
                share = apply("divide", apply("add", cut, 1.0), 2.0)
                result = share if raw.width == 1 else shares(share)
            case _:
                raise ValueError(f"no operators for the transform {self.spec.transform!r}")
        return self._rounded(result)

    def _sigmoid(self) -> Node:
        scaled = self.raw if self.spec.scale == 1.0 else apply("multiply", self.raw, self.spec.scale)
        return apply("sigmoid", scaled)

    def _proba(self) -> Node:
        spec = self.spec
        if len(spec.classes) > 1:
            return self._rounded(self.raw)
        if spec.transform == "class_index":
            return self._rounded(softmax(self.raw))
        if spec.n_outputs > 1:
            return self.response
        if len(spec.classes) == 1 and len(spec.classes[0]) == 1 and spec.transform == "identity":
            return self.response
        return with_complement(self.response)

    def _decision(self) -> Node:
        if self.spec.transform == "isolation":
            return apply("subtract", self.response, self.spec.offset)
        scaled = (
            self.raw if self.spec.raw_factor == 1.0 else apply("multiply", self.raw, self.spec.raw_factor)
        )
        return self._rounded(scaled)

    def _index(self) -> Node:
        spec, raw = self.spec, self.raw
        if spec.label_rule == "side":
            below = apply("less", self.response, spec.offset)
            return apply("subtract", 1.0, apply("multiply", below, 2.0))
        if len(spec.classes) > 1:
            ends = list(accumulate(map(len, spec.classes)))
            groups = [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
            return concat([reduce("argmax", select(raw, group)) for group in groups])
        match spec.label_rule:
            case "raw_positive" | "each_raw_positive":
                return apply("greater", raw, 0.0)
            case "raw_not_negative":
                return apply("greater_equal", raw, 0.0)
            case "above_half" | "each_above_half":
                return apply("greater", self.response, 0.5)
            case "raw_argmax":
                return reduce("argmax", raw)
            case _ if spec.transform == "class_index":
                return reduce("argmax", raw)
            case _ if spec.transform == "sigmoid" and spec.n_outputs == 1:
                return apply("greater", self.response, apply("subtract", 1.0, self.response))
            case _:
                return reduce("argmax", self._proba())


def undone(response: Node, inverse: Inverse) -> Node:
    """Responses on the scale of the target before it was transformed; see `hbtvm.graph.outputs.inverse`."""
    for name, constants in inverse:
        if name == "column" or name == "positive":
            continue
        if name in _FACTORS:
            response = apply("multiply", response, _FACTORS[name])
            continue
        operands = [np.array(constants)] if constants else []
        response = apply(_NAMES.get(name, name), response, *operands)
    return response
