"""From configurations to a cost model's input, in the representation that was chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_model.features import FEATURE_NAMES, features
from cost_model.flat import FLAT_NAMES, flat_features
from cost_model.nest import Nest

Columns = Mapping[str, NDArray[Any]]
Choices = Mapping[str, Sequence[int | str | bool]]
"""The choices that each knob of a space offers."""


class Encoder:
    """Features of configurations (AutoTVM, section 6.2 compares the three kinds).

    Parameters
    ----------
    kind
        ``"relation"``: context relation features, which mean the same for every program;
        ``"flat"``: all loops' contexts in order, which mean the same for programs of one form;
        ``"knobs"``: the choices themselves, which mean something only where knobs of one
        name do the same;
        ``"joint"``: context relation features, then the choices.
    spaces
        The spaces that knobs may come from; the columns of choices are those of all of them.

    Raises
    ------
    ValueError
        If there is no such kind.
    """

    def __init__(self, kind: str, spaces: Sequence[Choices] = ()) -> None:
        if kind not in ("relation", "flat", "knobs", "joint"):
            raise ValueError(f"there is no kind of features {kind!r}")
        self.kind = kind
        self._choices: dict[str, list[int | str | bool]] = {}
        for space in spaces:
            for knob, offered in space.items():
                known = self._choices.setdefault(knob, [])
                known.extend(choice for choice in offered if choice not in known)

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each block: one for what loops do, then one for each knob."""
        loops = {
            "relation": (len(FEATURE_NAMES),),
            "flat": (len(FLAT_NAMES),),
            "joint": (len(FEATURE_NAMES),),
        }
        knobs = tuple(len(offered) if _textual(offered) else 1 for offered in self._choices.values())
        return (*loops.get(self.kind, ()), *(knobs if self.kind in ("knobs", "joint") else ()))

    def __call__(self, loops: Callable[[Columns], Nest], columns: Columns, n: int) -> NDArray[np.float32]:
        """Encode n configurations of one space.

        Parameters
        ----------
        loops
            Describes them; not asked for ``"knobs"``.
        columns
            Their choices: one array of n values for each knob.

        Returns
        -------
        numpy.ndarray
            float32, (n, D), with the same D for every space; NaN for a knob that the space lacks.
        """
        if self.kind == "relation":
            return features(loops(columns), n)
        if self.kind == "flat":
            return flat_features(loops(columns), n)
        encoded: list[NDArray[np.float32]] = []
        if self.kind == "joint":
            encoded.extend(features(loops(columns), n).T)
        for knob, offered in self._choices.items():
            column = columns.get(knob)
            textual = _textual(offered)
            width = len(offered) if textual else 1
            if column is None:
                encoded.extend([np.full(n, np.nan, dtype=np.float32)] * width)
            elif textual:
                encoded.extend((column == choice).astype(np.float32) for choice in offered)
            else:
                # Tiles double from choice to choice: their logarithms are evenly spread.
                encoded.append(np.log2(1 + column.astype(np.float32)))
        return np.stack(encoded, axis=1)


def _textual(offered: Sequence[int | str | bool]) -> bool:
    return any(isinstance(choice, str) for choice in offered)
