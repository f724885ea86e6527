"""Features of candidates: what the cost models learn from.

Two representations, compared in AutoTVM's section 6.2:

- `features` reads them off a description of the loops. They mean the same for every
  workload and strategy, so what one model learns carries over to others.
- `knob_features` is the bare configuration. It means something only within one space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cost_model import relation, totals
from cost_model.context import contexts
from cost_model.nest import Nest

FEATURE_NAMES: tuple[str, ...] = (*relation.NAMES, *totals.NAMES)
"""Names of the columns of `features`, D in all."""


def features(nest: Nest, n: int) -> NDArray[np.float32]:
    """Summarise each of n candidates in a vector of fixed length.

    The columns are the context relation features (AutoTVM, section 4; see
    `cost_model.relation`), then totals over the nest (see `cost_model.totals`).

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


def knob_features(
    columns: Mapping[str, NDArray[np.generic]], choices: Mapping[str, Sequence[int | str | bool]]
) -> NDArray[np.float32]:
    """Encode configurations by their choices alone.

    Parameters
    ----------
    columns
        One array of n choices for each knob.
    choices
        The choices that each knob offers; this fixes the order and number of columns.

    Returns
    -------
    numpy.ndarray
        float32 of shape (n, K): a numeric knob is one column holding its value, a textual
        one has a 0/1 column for each choice.
    """
    encoded: list[NDArray[np.float32]] = []
    for knob, offered in choices.items():
        column = columns[knob]
        if any(isinstance(choice, str) for choice in offered):
            encoded.extend((column == choice).astype(np.float32) for choice in offered)
        else:
            encoded.append(column.astype(np.float32))
    return np.stack(encoded, axis=1)
