"""`Predictor`: what an estimator that predicts computes, each of its outputs a node."""

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

        - ``"index"``: positions of labels in `classes`, width the number of targets (of an anomaly detector
          without `classes`, -1 and 1 themselves);
        - ``"proba"``: probabilities, those of all targets side by side; a `Coupling` is left to the host;
        - ``"raw"``: raw scores, where kernels compute those of `trees`;
        - ``"decision"``: decision function;
        - ``"response"``: what a regressor's (or a clusterer's) ``predict`` returns;
        - ``"score"``: anomaly scores, ``score_samples``.
    classes
        The labels of each target; empty without labels.
    keeps_axis
        Whether a response or decision of one column has shape (n, 1), rather than (n,).
    label_dtype
        Type of the labels, or of the response, where `classes` is empty and it is not float64.
    trees
        The forest, where kernels compute its scores only, of which all outputs are functions.
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
        """All that a kernel computes side by side; the host makes probabilities of those of pairs."""
        return concat([node.x if isinstance(node, Coupling) else node for node in self._computed().values()])

    def output_spec(self) -> OutputSpec:
        """How outputs follow from `scores`, or from those of `trees`."""
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
        return dict(sorted(computed, key=lambda one: isinstance(one[1], Coupling)))

    def _cut(self) -> tuple[dict[str, Node], int]:
        """Outputs as columns of `scores`, and the number of these."""
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
    """Return the outputs of a specification over what computes its raw scores."""
    trees = scores if isinstance(scores, Trees) else None
    return Predictor(spec.kind, spec.over(scores), spec.classes, spec.keeps_axis, spec.label_dtype, trees)
