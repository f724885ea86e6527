"""A recursive model's words, their numbers, and the format of its trees' texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from hbtvm.words.printable import shown

Labels = Literal["none", "drop", "words"]
"""Meaning of the label after an opening bracket of a text; see `hbtvm.recursive.structures.brackets`."""


@dataclass(frozen=True)
class Vocabulary:
    """Words that structures may have in place of numbers.

    Attributes
    ----------
    words
        In the order of their numbers, from 0; not empty, and distinct.
    unknown
        The number of unknown words; None to refuse them.
    labels
        Meaning of the label after an opening bracket of a text.

    Raises
    ------
    ValueError
        If a word is empty or duplicated, or `unknown` or `labels` are invalid.
    """

    words: tuple[str, ...]
    unknown: int | None = None
    labels: Labels = "none"

    def __post_init__(self) -> None:
        seen: dict[str, int] = {}
        for at, word in enumerate(self.words):
            if type(word) is not str or not word:
                raise ValueError(f"word {at} is {shown(repr(word))}; expected a text that is not empty")
            if seen.setdefault(word, at) != at:
                raise ValueError(f"{shown(repr(word))} is word {seen[word]} and again word {at}")
        if not self.words:
            raise ValueError("there are no words")
        if self.unknown is not None and (
            type(self.unknown) is not int or not 0 <= self.unknown < len(self.words)
        ):
            raise ValueError(f"unknown words have the number {self.unknown!r:.40}, which no word has")
        if self.labels not in get_args(Labels):
            raise ValueError(f"labels are {self.labels!r:.40}; expected one of {', '.join(get_args(Labels))}")

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """Numbers by word."""
        return {word: at for at, word in enumerate(self.words)}

    def fits(self, sizes: Mapping[str, int]) -> None:
        """Check that an input of numbers has enough numbers for the words.

        `sizes`: the numbers of each such input, by name.
        Raises `ValueError` if none has.
        """
        if not sizes:
            raise ValueError("the model takes no numbers, for which words could stand")
        name = max(sizes, key=lambda name: sizes[name])
        if len(self.words) > sizes[name]:
            raise ValueError(f"there are {len(self.words):,} words; the model's {name!r} has {sizes[name]:,}")
