"""`Predictor`: what an estimator that predicts computes, each of its outputs a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hbtvm.graph.networks.network import Trees
from hbtvm.graph.outputs.output import Kind, OutputSpec
from hbtvm.operators.base import Node
from hbtvm.operators.coupling import Coupling
from hbtvm.operators.shapes import concat


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
        - ``"decision"``: decision function;
        - ``"response"``: what a regressor's (or a clusterer's) ``predict`` returns;
        - ``"score"``: anomaly scores, ``score_samples``.
    classes
        The labels of each target; empty without labels.
    keeps_axis
        Whether a response or decision of one column has shape (n, 1), rather than (n,).
    label_dtype
        Type of the labels, or of the response, where `classes` is empty and it is not float64.
    trees, spec
        Where all outputs are functions of one forest's scores that `OutputSpec` knows: the forest, and these.
    """

    kind: Kind
    outputs: Mapping[str, Node]
    classes: tuple[np.ndarray, ...] = ()
    keeps_axis: bool = False
    label_dtype: str | None = None
    trees: Trees | None = None
    spec: OutputSpec | None = None

    def computed(self) -> dict[str, Node]:
        """What a kernel computes, by name; the host makes probabilities of those of ``"pairs"``."""
        proba = self.outputs.get("proba")
        if not isinstance(proba, Coupling):
            return dict(self.outputs)
        return {
            **{name: node for name, node in self.outputs.items() if name != "proba"},
            "pairs": proba.x,
        }

    def scores(self) -> Node:
        """All of `computed` side by side."""
        return concat(list(self.computed().values()))

    def output_spec(self) -> OutputSpec:
        """How outputs are cut out of `scores`."""
        slices, first = {}, 0
        for name, node in self.computed().items():
            slices[name] = (first, first + node.width)
            first += node.width
        offered = {"label": "index", "proba": "proba", "decision": "decision", "score": "score"}
        return OutputSpec(
            kind=self.kind,
            n_outputs=first,
            transform="columns",
            # In the order in which they are listed to users.
            outputs=tuple(name for name, own in offered.items() if own in self.outputs),  # type: ignore[misc]
            classes=self.classes,
            label_dtype=self.label_dtype,
            keeps_axis=self.keeps_axis,
            slices=slices,
        )
