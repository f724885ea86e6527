"""Read structures from a file of text lines, JSON or arrays, in blocks."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.structures.arrays import blocks_of_arrays
from hbtvm.cli.structures.node_records import Nodes, Reader
from hbtvm.cli.structures.words_in import Taken, words_of
from hbtvm.errors import InputError
from hbtvm.recursive.packing import packed
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.runtime.recursive.vocabulary import Vocabulary
from hbtvm.words.printable import shown

TEXTS = (".txt", ".trees", ".ptb", ".mrg")
LINES, JSON, ARRAYS = (".jsonl", ".ndjson"), ".json", ".npz"

SUFFIXES = (*TEXTS, JSON, *LINES, ARRAYS)  # suffixes of files of structures

_NODES, _STRUCTURES = 65_536, 4096
"""Most nodes and structures of a block; a single structure may have more nodes."""

_PLACE = re.compile(r"structure (\d+)(, |: )")


@dataclass(frozen=True)
class Block:
    """Structures side by side."""

    structures: Structures
    places: list[str]  # the place of each structure in the file, such as ``line 7``


class StructureFile:
    """A file of structures for a model.

    `path`: a file with one of `SUFFIXES`.
    `children`: most children of a node; None for any number. With 1, texts and flat lists are sequences.
    `inputs`: the model's inputs of a node, by name.
    `vocabulary`: numbers of tokens, and what follows an opening bracket; None if tokens are numbers.
    `labels`: what follows an opening bracket (see `hbtvm.recursive.structures.brackets`), instead of the
        vocabulary's.
    Raises `UsageError` if the suffix is unknown, or the format can't hold the model's inputs.
    """

    def __init__(
        self,
        path: Path,
        children: int | None,
        inputs: Mapping[str, Taken],
        vocabulary: Vocabulary | None,
        labels: str | None = None,
    ) -> None:
        suffix = path.suffix.lower()
        if suffix not in SUFFIXES:
            raise UsageError(
                f"{path}: structures with the suffix {path.suffix!r} can't be read; known are "
                f"{', '.join(SUFFIXES)}"
            )
        if labels is not None and labels != "none" and suffix not in TEXTS:
            raise UsageError(f"{path}: --labels needs text, {', '.join(TEXTS)}")
        self._path, self._suffix, self._inputs = path, suffix, inputs
        if labels is None:
            labels = "none" if vocabulary is None else vocabulary.labels
        self._reader = Reader(children, inputs, words_of(vocabulary), labels)
        if suffix in TEXTS and self._reader.token is None:
            raise UsageError(
                f"{path}: text has a word at a node, but the model takes {', '.join(inputs) or 'nothing'} "
                "with each; give the structures as .jsonl or .npz"
            )

    def blocks(self) -> Iterator[Block]:
        """Read to the end; errors name the file, the line or structure, and the node."""
        if self._suffix == ARRAYS:
            for first, structures in blocks_of_arrays(self._path, self._inputs, _NODES, _STRUCTURES):
                yield Block(structures, [f"structure {first + i}" for i in range(len(structures))])
            return
        parse = self._reader.of_text if self._suffix in TEXTS else self._reader.of_value
        waiting: list[tuple[Nodes, str]] = []
        nodes = 0
        for place, value in self._values():
            try:
                found = parse(value)
            except InputError as error:
                raise self.explained(error, [place]) from error
            if waiting and (nodes + len(found.children) > _NODES or len(waiting) == _STRUCTURES):
                yield self._block(waiting)
                waiting, nodes = [], 0
            waiting.append((found, place))
            nodes += len(found.children)
        if waiting:
            yield self._block(waiting)

    def explained(self, error: InputError, places: list[str]) -> InputError:
        """Return the error with the place in the file instead of the place in a block."""
        found = _PLACE.match(str(error))
        text = str(error)
        if found is not None and int(found[1]) < len(places):
            text = f"{places[int(found[1])]}{found[2]}{text[found.end() :]}"
        return InputError(f"{self._path}: {text}")

    def _block(self, waiting: list[tuple[Nodes, str]]) -> Block:
        places = [place for _, place in waiting]
        inputs: dict[str, np.ndarray] = {}
        for name, one in self._inputs.items():
            found = [value for own, _ in waiting for value in own.inputs[name]]
            inputs[name] = (
                np.array(found, np.int32)
                if one.kind == "number"
                else np.array(found, np.float32).reshape(-1, one.size)
            )
        return Block(packed([one.children for one, _ in waiting], inputs), places)

    def _values(self) -> Iterator[tuple[str, Any]]:
        """Yield each structure's place, and its text or JSON value."""
        if self._suffix == JSON:
            yield from self._whole()
            return
        empty = 0
        for number, line in enumerate(self._lines(), 1):
            if not line.strip():
                empty = empty or number
                continue
            if empty:
                # Skipping it would shift the predictions after it by one.
                raise UsageError(f"{self._path}: line {empty} is empty; expected a structure in each line")
            yield f"line {number}", line.strip() if self._suffix in TEXTS else self._json(line, number)

    def _lines(self) -> Iterator[str]:
        try:
            with open(self._path, encoding="utf-8-sig", newline="\n") as file:
                yield from file
        except UnicodeDecodeError as error:
            raise UsageError(f"{self._path}: this is not UTF-8 text ({error.reason})") from error

    def _whole(self) -> Iterator[tuple[str, Any]]:
        text = "".join(self._lines())
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            lines = " (for a structure in each line, call it .jsonl)" if "Extra data" in str(error) else ""
            raise UsageError(f"{self._path}: this is not JSON ({shown(error)}){lines}") from error
        if not isinstance(found, list):
            found = [found]
        yield from zip((f"structure {i}" for i in itertools.count()), found, strict=False)

    def _json(self, line: str, number: int) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self._path}: line {number} is not JSON ({shown(error)})") from error


def joined(parts: Sequence[Structures]) -> Structures:
    """Concatenate structures."""
    if len(parts) == 1:
        return parts[0]
    nodes = np.cumsum([0, *(len(one.first) - 1 for one in parts)])
    edges = np.cumsum([0, *(len(one.child) for one in parts)])
    child = [np.where(one.child < 0, -1, one.child + at) for one, at in zip(parts, nodes, strict=False)]
    return Structures(
        np.concatenate([[0], *(one.starts[1:] + at for one, at in zip(parts, nodes, strict=False))]),
        np.concatenate([[0], *(one.first[1:] + at for one, at in zip(parts, edges, strict=False))]).astype(
            np.int32
        ),
        np.concatenate(child).astype(np.int32),
        {name: np.concatenate([one.inputs[name] for one in parts]) for name in parts[0].inputs},
    )
