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
from hbtvm.errors import InputError
from hbtvm.recursive.records.nodes import Nodes, Reader, structures_of
from hbtvm.recursive.records.words import NodeInput, words_of
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
    """Structures, and their places in the file."""

    structures: Structures
    places: list[str]  # the place of each structure in the file, such as ``line 7``


class StructureFile:
    """A file of structures for a model.

    `path`: a file with one of `SUFFIXES`.
    `children`: most children of a node; None for any number. With 1, texts and flat lists are sequences.
    `inputs`: the model's inputs of a node, by name.
    `vocabulary`: numbers of tokens, and what follows an opening bracket; None if tokens are numbers.
    `labels`: what follows an opening bracket (see `Labels`), instead of the vocabulary's.
    Raises `UsageError` if the suffix is unknown, or the format can't hold the model's inputs.
    """

    def __init__(
        self,
        path: Path,
        children: int | None,
        inputs: Mapping[str, NodeInput],
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
                record = parse(value)
            except InputError as error:
                raise self.explained(error, [place]) from error
            if waiting and (nodes + len(record.children) > _NODES or len(waiting) == _STRUCTURES):
                yield self._block(waiting)
                waiting, nodes = [], 0
            waiting.append((record, place))
            nodes += len(record.children)
        if waiting:
            yield self._block(waiting)

    def explained(self, error: InputError, places: list[str]) -> InputError:
        """Return the error with the place in the file instead of the place in a block."""
        match = _PLACE.match(str(error))
        text = str(error)
        if match is not None and int(match[1]) < len(places):
            text = f"{places[int(match[1])]}{match[2]}{text[match.end() :]}"
        return InputError(f"{self._path}: {text}")

    def _block(self, waiting: list[tuple[Nodes, str]]) -> Block:
        places = [place for _, place in waiting]
        return Block(structures_of([record for record, _ in waiting], self._inputs), places)

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
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            lines = " (for a structure in each line, call it .jsonl)" if "Extra data" in str(error) else ""
            raise UsageError(f"{self._path}: this is not JSON ({shown(error)}){lines}") from error
        if not isinstance(value, list):
            value = [value]
        yield from zip((f"structure {i}" for i in itertools.count()), value, strict=False)

    def _json(self, line: str, number: int) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self._path}: line {number} is not JSON ({shown(error)})") from error


def joined(parts: Sequence[Structures]) -> Structures:
    """Concatenate structures."""
    if len(parts) == 1:
        return parts[0]
    nodes = np.cumsum([0, *(len(part.first) - 1 for part in parts)])
    edges = np.cumsum([0, *(len(part.child) for part in parts)])
    child = [np.where(part.child < 0, -1, part.child + at) for part, at in zip(parts, nodes, strict=False)]
    return Structures(
        np.concatenate([[0], *(part.starts[1:] + at for part, at in zip(parts, nodes, strict=False))]),
        np.concatenate([[0], *(part.first[1:] + at for part, at in zip(parts, edges, strict=False))]).astype(
            np.int32
        ),
        np.concatenate(child).astype(np.int32),
        {name: np.concatenate([part.inputs[name] for part in parts]) for name in parts[0].inputs},
    )
