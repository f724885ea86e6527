"""Encoding of configurations as cost models' features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.encoding.features import FEATURE_NAMES, features
from hbtvm.cost_model.encoding.flat import FLAT_NAMES, flat_features
from hbtvm.cost_model.encoding.nest import Nest

Columns = Mapping[str, NDArray[Any]]
Choices = Mapping[str, Sequence[int | str | bool]]  # the choices of each knob in a space
Workload = Mapping[str, Any]  # a program's shapes by name


class Encoder:
    """Features of configurations (AutoTVM, section 6.2 compares the three kinds).

    `kind`: ``"relation"``: context relation features, which transfer between all programs; ``"flat"``: all
        loops' contexts in order, which transfer between programs of the same form; ``"knobs"``: the choices
        themselves, which transfer if knobs of the same name do the same, and the sizes in which the workloads
        differ; ``"joint"``: context relation features, then the choices.
    `spaces`: the spaces of knobs; the columns cover the choices of all spaces.
    `workloads`: the workloads to distinguish: the best choices depend on sizes such as the batch size, which
        choices alone do not show.
    Raises `ValueError` if there is no such kind.
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
        """Columns of each block: loop features, then one block for each knob and each size."""
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
        """Whether the encoder needs loop features (see `loops`) besides the choices."""
        return self.kind != "knobs"

    def loops(self, nests: Sequence[Nest]) -> NDArray[np.float32]:
        """Return the loop features of n programs, float32, (n, `widths`[0]); no columns for ``"knobs"``."""
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

        `columns`: the choices: an array of n values for each knob.
        `workload`: the workload; without it, sizes are unknown.
        `loops`: the loop features from `loops`; not needed for ``"knobs"``.
        Returns float32, (n, D), with the same D for every space; NaN for a knob that the space lacks, and for
        an unknown size. Raises `ValueError` if loop features are needed and missing.
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
                # Tiles double from choice to choice: logarithms are evenly spaced.
                encoded.append(np.log2(1 + column.astype(np.float32)))
        known = _sizes(workload or {})
        encoded.extend(np.full(n, np.log2(1 + known.get(name, np.nan)), np.float32) for name in self._sizes)
        return np.stack(encoded, axis=1)


def _textual(offered: Sequence[int | str | bool]) -> bool:
    return any(isinstance(choice, str) for choice in offered)


def _differing(workloads: Sequence[Workload]) -> tuple[str, ...]:
    """Return the names of sizes that all workloads have with different values."""
    known = [_sizes(workload) for workload in workloads]
    shared = set.intersection(*map(set, known)) if known else set()
    return tuple(sorted(name for name in shared if len({sizes[name] for sizes in known}) > 1))


def _sizes(workload: Workload) -> dict[str, float]:
    """Return the numbers of a workload, such as its rows."""
    numbers = {name: value for name, value in workload.items() if type(value) in (int, float)}
    return {name: float(value) for name, value in numbers.items() if value >= 0}
