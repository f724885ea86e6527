"""`Predictor`: the outputs of an estimator that predicts, as nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hbtvm.graph.networks.network import Trees
from hbtvm.graph.outputs.output import Kind, OutputSpec, unrounded
from hbtvm.operators.base import Input, Node, rewrite
from hbtvm.operators.coupling import Coupling
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, select


@dataclass(frozen=True, eq=False)
class Predictor:
    """An estimator's outputs over the table that it reads.

    Attributes
    ----------
    kind
        Kind of model.
    outputs
        Nodes by name:

        - ``"index"``: positions of labels in `classes`, width the number of targets (for an anomaly detector
          without `classes`, -1 and 1 themselves);
        - ``"proba"``: probabilities, of all targets side by side; the host computes a `Coupling`;
        - ``"raw"``: raw scores, if kernels compute those of `trees`;
        - ``"decision"``: decision function;
        - ``"response"``: ``predict`` of a regressor or a clusterer;
        - ``"score"``: anomaly scores, ``score_samples``.
    classes
        The labels of each target; empty without labels.
    keeps_axis
        Whether a response or decision of one column has shape (n, 1), rather than (n,).
    label_dtype
        Type of the labels, or of the response, if `classes` is empty and it is not float64.
    trees
        The forest, if kernels compute its scores only; all outputs are functions of these.
    """

    kind: Kind
    outputs: Mapping[str, Node]
    classes: tuple[np.ndarray, ...] = ()
    keeps_axis: bool = False
    label_dtype: str | None = None
    trees: Trees | None = None

    @property
    def responds_in_float32(self) -> bool:
        """Whether ``predict`` returns float32 responses."""
        response = self.outputs.get("response")
        return response is not None and (self.label_dtype == "float32" or unrounded(response) is not response)

    def scores(self) -> Node:
        """Return the kernel's scores: all outputs side by side, and the inputs of a `Coupling`."""
        return concat([node.x if isinstance(node, Coupling) else node for node in self._computed().values()])

    def output_spec(self) -> OutputSpec:
        """Return the outputs as functions of `scores`, or of the scores of `trees`."""
        if self.trees is not None:
            scores, width = self.trees, self.trees.width
            outputs = rewrite(
                list(self.outputs.values()), lambda node: Input(width) if node is scores else node
            )
            nodes = dict(zip(self.outputs, outputs, strict=True))
        else:
            nodes, width = self._cut()
        return OutputSpec(
            self.kind, width, nodes, self.classes, label_dtype=self.label_dtype, keeps_axis=self.keeps_axis
        )

    def _computed(self) -> dict[str, Node]:
        computed = [(name, node) for name, node in self.outputs.items() if name != "raw"]
        return dict(sorted(computed, key=lambda item: isinstance(item[1], Coupling)))

    def _cut(self) -> tuple[dict[str, Node], int]:
        """Return outputs as columns of `scores`, and the number of columns."""
        scores = Input(self.scores().width)
        nodes, first = dict[str, Node](), 0
        for name, node in self._computed().items():
            width = node.x.width if isinstance(node, Coupling) else node.width
            part = select(scores, range(first, first + width))
            if isinstance(node, Coupling):
                part = node.on(part)
            nodes[name] = part if unrounded(node) is node else apply("round_float32", part)
            first += width
        return nodes, first


def predictor_over(spec: OutputSpec, scores: Node) -> Predictor:
    """Return the outputs of a specification over the node of its raw scores."""
    trees = scores if isinstance(scores, Trees) else None
    return Predictor(spec.kind, spec.over(scores), spec.classes, spec.keeps_axis, spec.label_dtype, trees)
