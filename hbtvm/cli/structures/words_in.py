"""Read vocabularies, and convert words to numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hbtvm.cli.arguments import UsageError
from hbtvm.errors import InputError
from hbtvm.runtime.recursive.vocabulary import Labels, Vocabulary
from hbtvm.words.printable import shown

_LIMIT = 2**31  # exclusive bound of tokens (int32)


class NodeInput(Protocol):
    """An input of a node: `hbtvm.recursive.cell.Input`, or a package's."""

    @property
    def kind(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def optional(self) -> bool: ...


@dataclass(frozen=True)
class Words:
    """Numbers of words."""

    numbers: Mapping[str, int] | None = None  # numbers by word; None if words are numbers in digits
    unknown: int | None = None  # number of unknown words; None to refuse them

    def number(self, token: Any, where: str) -> int:
        """Return the number of a token, a word or a whole number; -1 for None.

        Raises `InputError` if it is an unknown word, or not a token; the sentence begins with `where`.
        """
        if token is None:
            return -1
        if type(token) is int:
            if -_LIMIT <= token < _LIMIT:
                return token
            raise InputError(f"{where}: {token} is out of range.")
        if not isinstance(token, str):
            raise InputError(
                f"{where}: the token is {shown(repr(token))}; expected a word or a whole number."
            )
        if self.numbers is None:
            digits = token.removeprefix("-")
            if digits.isascii() and digits.isdigit() and len(digits) < 10:
                return int(token)
            raise InputError(
                f"{where}: {shown(repr(token))} is not a number; --vocabulary names a file of words."
            )
        number = self.numbers.get(token, self.unknown)
        if number is None:
            raise InputError(
                f"{where}: {shown(repr(token))} is not in the vocabulary; --unknown WORD names the word "
                "that replaces unknown words."
            )
        return number


def words_of(vocabulary: Vocabulary | None) -> Words:
    """Return the words of a vocabulary; without a vocabulary, words are numbers in digits."""
    return Words() if vocabulary is None else Words(vocabulary.numbers, vocabulary.unknown)


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


def some(names: Collection[str]) -> str:
    """List names."""
    return ", ".join(map(repr, names)) or "none"
