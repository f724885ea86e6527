"""What kernels read of raw columns, in plain numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hbtvm.graph.columns.evaluate import Evaluator
from hbtvm.graph.columns.feeds import Feed


def feed_matrix(
    feeds: Sequence[Feed], raw: Mapping[int, np.ndarray] | Sequence[np.ndarray], dtype: str
) -> np.ndarray:
    """Compute the matrix that a kernel reads, by the oracle (see `hbtvm.graph.columns.evaluate.Evaluator`).

    Steps are computed in the type of the raw numbers; the results are then cast to `dtype`.

    Returns
    -------
    `dtype`, shape (n, feeds), C-contiguous.
    """
    evaluator = Evaluator(raw)
    values = [evaluator.column(feed.source, feed.steps) for feed in feeds]
    out = np.empty((len(values[0]), len(values)), dtype)
    with np.errstate(over="ignore"):
        for i, one in enumerate(values):
            out[:, i] = one
    return out
