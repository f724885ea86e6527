"""Features of candidates: what the cost models learn from.

They are read off a description of the loops, and mean the same for every workload and strategy, so that what
one model learns carries over to others. `hbtvm.cost_model.encode` has them and the other kinds by name.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model import relation, totals
from hbtvm.cost_model.context import contexts
from hbtvm.cost_model.nest import Nest

FEATURE_NAMES: tuple[str, ...] = (*relation.NAMES, *totals.NAMES)
"""Names of the columns of `features`, D in all."""


def features(nest: Nest, n: int) -> NDArray[np.float32]:
    """Summarise each of n candidates in a vector of fixed length.

    The columns are the context relation features (AutoTVM, section 4; see
    `hbtvm.cost_model.relation`), then totals over the nest (see `hbtvm.cost_model.totals`).

    Parameters
    ----------
    nest
        The statements of the program; every number in it is shared or of shape (n,).
    n
        Number of configurations.

    Returns
    -------
    numpy.ndarray
        Finite float32 values of shape (n, len(FEATURE_NAMES)). The order of statements,
        and loops of extent 1, make no difference.

    Raises
    ------
    ValueError
        If an access does not have one stride for each loop, or an array is not of length n.
    """
    related, whole = relation.Relations(n), totals.Totals(n)
    for statement in contexts(nest, n):
        related.add(statement)
        whole.add(statement)
    return np.concatenate([related.result(), whole.result()], axis=1)
