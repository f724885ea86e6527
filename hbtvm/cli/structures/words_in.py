"""Read vocabularies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hbtvm.cli.arguments import UsageError
from hbtvm.recursive.records.words import NodeInput
from hbtvm.runtime.recursive.vocabulary import Labels, Vocabulary
from hbtvm.words.printable import shown


def read_vocabulary(path: str, unknown: str, labels: Labels, inputs: Mapping[str, NodeInput]) -> Vocabulary:
    """Read a file with a word per line; a word's number is its line, from 0.

    `unknown`: the word that replaces unknown words; ``"error"`` to refuse them.
    `labels`: what follows an opening bracket of text.
    `inputs`: the model's inputs.
    Raises `UsageError` if it can't be read, a line is empty or repeated, or no input takes so many words.
    """
    lines = _lines(Path(path))
    numbers: dict[str, int] = {}
    for at, word in enumerate(lines):
        if not word:
            raise UsageError(f"{path}: line {at + 1} is empty; expected a word in each line")
        if numbers.setdefault(word, at) != at:
            raise UsageError(
                f"{path}: {shown(repr(word))} is in line {numbers[word] + 1} and again in line {at + 1}"
            )
    if unknown != "error" and unknown not in numbers:
        raise UsageError(f"--unknown {unknown}: {path} has no such word")
    try:
        vocabulary = Vocabulary(tuple(lines), None if unknown == "error" else numbers[unknown], labels)
        vocabulary.fits({name: item.size for name, item in inputs.items() if item.kind == "number"})
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    return vocabulary


def _lines(path: Path) -> list[str]:
    """Return the lines, without empty lines at the end."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: this is not UTF-8 text ({error.reason})") from error
    # Words may contain other line breaks of `splitlines`.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines
