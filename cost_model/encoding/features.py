"""Loop features, which cost models use in place of bare choices.

They are computed from a description of a program's loops and mean the same for every workload and operator,
so that models transfer. `hbtvm.cost_model.encoding.encode` selects among these and the other kinds by name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.encoding import relation, totals
from hbtvm.cost_model.encoding.context import contexts
from hbtvm.cost_model.encoding.nest import Nest

FEATURE_NAMES: tuple[str, ...] = (*relation.NAMES, *totals.NAMES)  # column names of `features`; D in number


def features(nests: Sequence[Nest]) -> NDArray[np.float32]:
    """Summarise each of n programs in a vector of fixed length.

    The columns are the context relation features (AutoTVM, section 4; see
    `hbtvm.cost_model.encoding.relation`), then totals over the nest (see `hbtvm.cost_model.encoding.totals`).

    `nests`: the statements of each program.
    Returns finite float32 values of shape (n, len(FEATURE_NAMES)), independent of the order of statements and
    of loops of extent 1. Raises `ValueError` if an access does not have one stride for each loop.
    """
    known = contexts(nests)
    return np.concatenate([relation.relations(known), totals.totals(known)], axis=1)
