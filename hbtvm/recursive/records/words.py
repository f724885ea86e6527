"""Words of structures, as numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hbtvm.errors import InputError
from hbtvm.runtime.recursive.vocabulary import Vocabulary
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


def some(names: Collection[str]) -> str:
    """List names."""
    return ", ".join(map(repr, names)) or "none"
