"""The models that are compared, their weights, and what they have to compute and to read at least.

Of the works that Cortex (MLSys'21, section 7) takes its models from; H is the hidden size. Imported in the
peers' processes: numpy only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.recursive.structures import Linear

VOCABULARY = 1_000
"""Words, numbered."""

_LARGE = 1 << 28
"""Most bytes of a table of words; larger models have a tenth of the words."""


@dataclass(frozen=True)
class Model:
    """A recursive model.

    Attributes
    ----------
    title
        What it is called.
    cell
        Its name in `hbtvm.recursive.known`.
    kind
        Of its structures, see `structures.KINDS`.
    hidden
        The hidden sizes that are compared.
    shapes
        Of its weights, by name, beside the ``words``; from H.
    recurrent
        Numbers of the weights that every level but the first has to read, in H².
    states
        Names of a node's states; the first is the one that is read.
    family
        ``"tree"``, ``"matrix"`` or ``"sequence"``: which goal it has; ``"study"``: none, a study is of it.
    """

    title: str
    cell: str
    kind: str
    hidden: tuple[int, ...]
    shapes: Callable[[int], dict[str, tuple[int, ...]]]
    recurrent: int
    states: tuple[str, ...] = ("h",)
    family: str = "tree"


def _sequence(gates: int) -> Callable[[int], dict[str, tuple[int, ...]]]:
    """Weights as torch's layers have them."""
    return lambda h: {
        "weight_ih": (gates * h, h),
        "weight_hh": (gates * h, h),
        "bias_ih": (gates * h,),
        "bias_hh": (gates * h,),
    }


MODELS = {
    "treefc": Model(
        "TreeFC", "tree_fc", "perfect", (256, 512), lambda h: {"W": (h, 2 * h), "b": (h,)}, recurrent=2
    ),
    "dagrnn": Model(
        "DAG-RNN",
        "dag_rnn",
        "grid",
        (256, 512),
        lambda h: {"Wx": (h, h), "U": (h, h), "b": (h,)},
        recurrent=1,
    ),
    "treegru": Model(
        "TreeGRU",
        "tree_gru",
        "parse",
        (256, 512),
        lambda h: {"Wx": (3 * h, h), "U": (2 * h, h), "Uh": (h, h), "b": (3 * h,)},
        recurrent=3,
    ),
    "treelstm": Model(
        "TreeLSTM",
        "tree_lstm",
        "parse",
        (256, 512),
        lambda h: {"Wx": (4 * h, h), "U": (3 * h, h), "Uf": (h, h), "b": (4 * h,)},
        recurrent=4,
        states=("h", "c"),
    ),
    "treernn": Model(
        "TreeRNN", "tree_rnn", "parse", (256, 512), lambda h: {"W": (h, h)}, recurrent=1, family="study"
    ),
    "mvrnn": Model(
        "MV-RNN",
        "mv_rnn",
        "parse",
        (64, 128, 256, 512),
        lambda h: {"matrices": (vocabulary("mvrnn", h), h * h), "W": (h, 2 * h), "WM": (h, 2 * h), "b": (h,)},
        recurrent=4,
        states=("p", "P"),
        family="matrix",
    ),
    "rnn": Model("RNN", "rnn", "chain", (256, 512), _sequence(1), recurrent=1, family="sequence"),
    "lstm": Model(
        "LSTM", "lstm", "chain", (256, 512), _sequence(4), recurrent=4, states=("h", "c"), family="sequence"
    ),
    "gru": Model("GRU", "gru", "chain", (256, 512), _sequence(3), recurrent=3, family="sequence"),
}
"""By name. Gates lie behind one another: r, z and the new state (GRU); i, o, u, f (TreeLSTM); torch's order
in sequences. MV-RNN has a state that is a matrix."""


def vocabulary(model: str, hidden: int) -> int:
    """Return the number of words."""
    numbers = hidden * hidden if MODELS[model].family == "matrix" else hidden
    return VOCABULARY if 4 * VOCABULARY * numbers < _LARGE else VOCABULARY // 10


def weights(model: str, hidden: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights, float32, of the size that training begins with: uniform within 1 / sqrt(inputs)."""
    rng = np.random.default_rng(seed)
    shapes = {"words": (vocabulary(model, hidden), hidden), **MODELS[model].shapes(hidden)}
    scale = {name: hidden if name == "matrices" else shape[-1] for name, shape in shapes.items()}
    return {
        name: (rng.uniform(-1, 1, shape) / np.sqrt(scale[name])).astype(np.float32)
        for name, shape in shapes.items()
    }


def operations(model: str, hidden: int, linear: Linear) -> int:
    """Additions and multiplications in products with weights and of matrices: nearly all there are."""
    h = hidden
    leaf, inner, nodes = int(linear.leaf.sum()), int((~linear.leaf).sum()), linear.nodes
    edges = int((linear.child >= 0).sum())
    products = {
        "treefc": 2 * inner * h * h,
        "dagrnn": (nodes + inner) * h * h,
        # Leaves have no state to reset or to forget.
        "treegru": (2 * leaf + 3 * inner) * h * h,
        "treelstm": (3 * leaf + 3 * inner + edges) * h * h,
        "treernn": inner * h * h,
        "mvrnn": inner * (4 * h * h + 2 * h**3),
        "rnn": (nodes + inner) * h * h,
        "lstm": 4 * (nodes + inner) * h * h,
        "gru": 3 * (nodes + inner) * h * h,
    }
    return 2 * products[model]


def recurrent_bytes(model: str, hidden: int) -> int:
    """Bytes of the weights that every level but the first has to read."""
    return 4 * hidden * hidden * MODELS[model].recurrent
