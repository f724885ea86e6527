"""From configurations to a cost model's input, in the representation that was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.features import FEATURE_NAMES, features
from hbtvm.cost_model.flat import FLAT_NAMES, flat_features
from hbtvm.cost_model.nest import Nest

Columns = Mapping[str, NDArray[Any]]
Choices = Mapping[str, Sequence[int | str | bool]]
"""The choices that each knob of a space offers."""

Workload = Mapping[str, Any]
"""The shapes that a program is for, by name."""


class Encoder:
    """Features of configurations (AutoTVM, section 6.2 compares the three kinds).

    Parameters
    ----------
    kind
        ``"relation"``: context relation features, which mean the same for every program;
        ``"flat"``: all loops' contexts in order, which mean the same for programs of one form;
        ``"knobs"``: the choices themselves, which mean something only where knobs of one
        name do the same, and the sizes in which the workloads differ;
        ``"joint"``: context relation features, then the choices.
    spaces
        The spaces that knobs may come from; the columns of choices are those of all of them.
    workloads
        Those that are to be distinguished: the best choice for one row is another than for a thousand, and
        choices alone do not show the batch size.

    Raises
    ------
    ValueError
        If there is no such kind.
    """

    def __init__(self, kind: str, spaces: Sequence[Choices] = (), workloads: Sequence[Workload] = ()) -> None:
        if kind not in ("relation", "flat", "knobs", "joint"):
            raise ValueError(f"there is no kind of features {kind!r}")
        self.kind = kind
        self._choices: dict[str, list[int | str | bool]] = {}
        for space in spaces:
            for knob, offered in space.items():
                known = self._choices.setdefault(knob, [])
                known.extend(choice for choice in offered if choice not in known)
        self._sizes = _differing(workloads) if kind == "knobs" else ()

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each block: loop features, then one for each knob, and for each size."""
        loops = {
            "relation": (len(FEATURE_NAMES),),
            "flat": (len(FLAT_NAMES),),
            "joint": (len(FEATURE_NAMES),),
        }
        knobs = tuple(len(offered) if _textual(offered) else 1 for offered in self._choices.values())
        sizes = (1,) * len(self._sizes)
        return (*loops.get(self.kind, ()), *(knobs if self.kind in ("knobs", "joint") else ()), *sizes)

    @property
    def reads_loops(self) -> bool:
        """Whether candidates have to be described (see `loops`), not only named by their choices."""
        return self.kind != "knobs"

    def loops(self, nests: Sequence[Nest]) -> NDArray[np.float32]:
        """The loop features of n programs, float32, (n, `widths`[0]); none for ``"knobs"``."""
        if self.kind == "knobs":
            return np.empty((len(nests), 0), np.float32)
        return flat_features(nests) if self.kind == "flat" else features(nests)

    def __call__(
        self,
        columns: Columns,
        n: int,
        workload: Workload | None = None,
        loops: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """Encode n configurations of one space.

        Parameters
        ----------
        columns
            Their choices: one array of n values for each knob.
        workload
            What they are for; without it its sizes are unknown.
        loops
            Their loop features, as `loops` computes them; not needed for ``"knobs"``.

        Returns
        -------
        numpy.ndarray
            float32, (n, D), with the same D for every space; NaN for a knob that the space lacks, and
            for an unknown size.

        Raises
        ------
        ValueError
            If loop features are needed and missing.
        """
        encoded: list[NDArray[np.float32]] = []
        if self.reads_loops:
            if loops is None:
                raise ValueError(f"features of kind {self.kind!r} need the candidates' loop features")
            if self.kind != "joint":
                return loops
            encoded.extend(loops.T)
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
        known = _sizes(workload or {})
        encoded.extend(np.full(n, np.log2(1 + known.get(name, np.nan)), np.float32) for name in self._sizes)
        return np.stack(encoded, axis=1)


def _textual(offered: Sequence[int | str | bool]) -> bool:
    return any(isinstance(choice, str) for choice in offered)


def _differing(workloads: Sequence[Workload]) -> tuple[str, ...]:
    """Names of the sizes that all workloads have, and not all alike."""
    known = [_sizes(workload) for workload in workloads]
    shared = set.intersection(*map(set, known)) if known else set()
    return tuple(sorted(name for name in shared if len({sizes[name] for sizes in known}) > 1))


def _sizes(workload: Workload) -> dict[str, float]:
    """The numbers of a workload, such as its rows."""
    numbers = {name: value for name, value in workload.items() if type(value) in (int, float)}
    return {name: float(value) for name, value in numbers.items() if value >= 0}
