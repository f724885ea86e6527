"""Positions of a pipeline's columns in a frame, cached for frames with the same columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hbtvm.errors import InputError
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.rows.columns import ColumnReader
from hbtvm.runtime.rows.containers import Container, DictRows
from hbtvm.runtime.rows.pandas_frame import PandasFrame
from hbtvm.words.similar import misspelt

_KEPT = 4  # cached layouts; a service has one or two
Positions = Mapping[int, int] | Sequence[int]  # positions by the input's column


class Layouts:
    """Finds the positions of columns.

    `spec`: what the pipeline accepts.
    `needed`: the columns that it reads, by their index.
    `columns`: checks names that must be the pipeline's.
    """

    def __init__(self, spec: InputSpec, needed: Sequence[int], columns: ColumnReader) -> None:
        self._spec, self._needed, self._columns = spec, tuple(needed), columns
        self._in_order: Positions = range(spec.n_features)
        # Replaced, never changed, because other threads may read it.
        self._known: tuple[tuple[Any, Positions], ...] = ()

    def positions(self, rows: Container | PandasFrame) -> Positions:
        """Return the positions of the needed columns.

        Raises `InputError` if a column is missing or duplicated, or columns that must be the pipeline's are
        not.
        """
        if isinstance(rows, PandasFrame):
            index = rows.index
            for key, positions in self._known:
                # pandas recognizes views of an index without comparing names.
                if key is index or (not isinstance(key, tuple) and index.is_(key)):
                    return positions
            return self._remember(index, self._find(rows.names, rows.width))
        if rows.names is None or isinstance(rows, DictRows):
            return self._in_order
        for key, positions in self._known:
            if isinstance(key, tuple) and key == rows.names:
                return positions
        return self._remember(rows.names, self._find(rows.names, rows.width))

    def _remember(self, key: Any, positions: Positions) -> Positions:
        self._known = ((key, positions), *self._known[: _KEPT - 1])
        return positions

    def _find(self, names: tuple[str, ...] | None, width: int) -> Positions:
        expected = self._spec.feature_names
        if not self._spec.by_name or expected is None:
            self._columns.check_header(names, width)
            return self._in_order
        places: dict[str, int] = {}
        repeated: set[str] = set()
        for at, name in enumerate(names or ()):
            if places.setdefault(name, at) != at:
                repeated.add(name)
        needed = {raw: expected[raw] for raw in self._needed}
        lacking = [name for name in needed.values() if name not in places]
        if lacking:
            more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            hint = misspelt(lacking[0], [name for name in names or () if name not in expected]) or "."
            raise InputError(f"column {lacking[0]!r}, which the pipeline reads, is missing{more}{hint}")
        for name in needed.values():
            if name in repeated:
                raise InputError(f"column {name!r} appears twice.")
        return {raw: places[name] for raw, name in needed.items()}
