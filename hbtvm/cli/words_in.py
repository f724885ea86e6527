"""Vocabularies: files of words, and the numbers that words of structures stand for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hbtvm.cli.arguments import UsageError
from hbtvm.errors import InputError
from hbtvm.printable import shown
from hbtvm.runtime.recursive.vocabulary import Labels, Vocabulary

_LIMIT = 2**31
"""Numbers of nodes are int32."""


class Taken(Protocol):
    """What a model takes with each node: `hbtvm.recursive.cell.Input`, or that of a package."""

    @property
    def kind(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def optional(self) -> bool: ...


@dataclass(frozen=True)
class Words:
    """Numbers of words.

    Attributes
    ----------
    numbers
        By word; None where words are numbers themselves, in digits.
    unknown
        The number of words that `numbers` lacks; None to refuse them.
    """

    numbers: Mapping[str, int] | None = None
    unknown: int | None = None

    def number(self, token: Any, where: str) -> int:
        """The number that a token stands for: a whole number for itself, None for none.

        Raises
        ------
        InputError
            If it is an unknown word, or no token; the sentence begins with `where`.
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
                f"{where}: {shown(repr(token))} is no number; --vocabulary names a file of words."
            )
        found = self.numbers.get(token, self.unknown)
        if found is None:
            raise InputError(
                f"{where}: {shown(repr(token))} is not in the vocabulary; --unknown WORD says which of its "
                "words stands for such."
            )
        return found


def words_of(vocabulary: Vocabulary | None) -> Words:
    """Numbers of a vocabulary's words; without one, words are numbers in digits."""
    return Words() if vocabulary is None else Words(vocabulary.numbers, vocabulary.unknown)


def read_vocabulary(path: str, unknown: str, labels: Labels, inputs: Mapping[str, Taken]) -> Vocabulary:
    """Read a file of words, one in each line; a word's number is that of its line, from 0.

    Parameters
    ----------
    unknown
        The word that stands for those that the file lacks; ``"error"`` for none.
    labels
        What stands behind an opening bracket of text.
    inputs
        Of the model.

    Raises
    ------
    UsageError
        If it can't be read, a line is empty or there twice, or no input takes so many words.
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
        made = Vocabulary(tuple(lines), None if unknown == "error" else numbers[unknown], labels)
        made.fits({name: one.size for name, one in inputs.items() if one.kind == "number"})
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    return made


def _lines(path: Path) -> list[str]:
    """Lines without their ends; empty ones at the end are left out."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: this is no text in UTF-8 ({error.reason})") from error
    # Words may hold what `splitlines` takes for the end of a line.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def some(names: Collection[str]) -> str:
    """Names of inputs, listed."""
    return ", ".join(map(repr, names)) or "none"
