"""JSON rows of a recursive model, as structures."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.recursive.records.nodes import Reader, structures_of
from hbtvm.recursive.records.places import places_of, require_one_root
from hbtvm.recursive.records.words import words_of
from hbtvm.runtime.recursive.entry import RecursionEntry
from hbtvm.runtime.recursive.structures import Structures

_NODE = 256  # bytes of a node besides its states and vectors: in Python's lists and in arrays


class StructureRows:
    """Converts JSON rows, or bracketed texts, to structures.

    `entry`: the package's recursive model.
    `over`: the nodes that the model reads.
    """

    def __init__(self, entry: RecursionEntry) -> None:
        self._inputs = {item.name: item for item in entry.inputs}
        vocabulary = entry.vocabulary
        labels = "none" if vocabulary is None else vocabulary.labels
        self._reader = Reader(entry.children, self._inputs, words_of(vocabulary), labels)
        self._vocabulary, self._places, self.over = vocabulary, entry.children, entry.over
        vectors = sum(item.size for item in entry.inputs if item.kind == "vector")
        self._node = _NODE + 4 * (entry.width + vectors)

    @property
    def example(self) -> Any:
        """Return a small structure."""
        if self._reader.token is None:
            inputs = {
                name: [0 if item.kind == "number" else [0.0] * item.size]
                for name, item in self._inputs.items()
            }
            return {"children": [[]], "inputs": inputs}
        word = 0 if self._vocabulary is None else self._vocabulary.words[0]
        # Only nodes with optional words may have children without a word.
        pair = self._places == 1 or (self._places != 0 and self._inputs[self._reader.token].optional)
        return [word, word] if pair else word

    def of(self, rows: list[Any]) -> Structures:
        """Return structures.

        Raises `InputError` if a row is not a structure for the model; it names the row and the node.
        """
        if not rows:
            raise InputError('"rows" is empty; expected at least one structure.')
        records = []
        for at, row in enumerate(rows):
            text = isinstance(row, str) and self._reader.token is not None
            try:
                records.append(self._reader.of_text(row) if text else self._reader.of_value(row))
            except InputError as error:
                raise InputError(str(error).replace("structure 0", f"structure {at}", 1)) from error
        structures = structures_of(records, self._inputs)
        if self.over == "roots":
            require_one_root(structures, "send one structure for each root")
        return structures

    def owners(self, structures: Structures) -> np.ndarray | None:
        """Return each result's structure; None if each structure has one result."""
        return places_of(structures, self.over)[:, 0] if self.over == "nodes" else None

    def bytes(self, structures: Structures) -> int:
        """Return an upper bound of the memory to compute structures."""
        return self._node * (len(structures.first) - 1)
