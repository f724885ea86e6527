"""`Characters`: what Python's `str` and `re` say of every character, in tables that a kernel reads.

A table is two-stage: the upper bits of a code point choose one of the different pages of 256 entries.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

Accents = Literal["ascii", "unicode"]

PAGE = 256
PAGES = (sys.maxunicode + 1) // PAGE

WORD, TOKEN, SPACE = 1, 2, 4
"""Bits of a character's class: of ``\\w``, of a token, of ``\\s``."""

SEVERAL, CONTEXT, SAME = 1 << 31, (1 << 31) - 1, (1 << 31) - 2
"""Marks of `Characters.maps`: several code points; one that depends on those beside it; no change."""

_SIGMA = 0x3A3  # the only character whose lower case depends on its place in a word


@dataclass(frozen=True, eq=False)
class Characters:
    """Classes of characters, and what each becomes before a text is cut into terms."""

    class_page: np.ndarray  # uint16, shape (`PAGES`,): for a code point's upper bits, a page of `classes`
    # Uint8, shape (pages, 256): `WORD`, `TOKEN` and `SPACE` of characters as they are after `maps`
    classes: np.ndarray
    # Uint16, shape (`PAGES`,), or empty where characters stay as they are but for lower case of ASCII's
    map_page: np.ndarray
    # Uint32, shape (pages, 256): a code point; `SEVERAL`, with the first of several in `expansions` from bit
    # 8 on and their number (0 to 255) below; `CONTEXT`; or `SAME`
    maps: np.ndarray
    expansions: np.ndarray  # uint32, shape (n,): code points

    def validate(self) -> Characters:
        """Return it, if a kernel finds its way through it.

        Raises `ValueError` if it does not.
        """
        _check_pages(self.class_page, self.classes, np.uint8)
        if len(self.map_page):
            _check_pages(self.map_page, self.maps, np.uint32)
        words, expansions = self.maps.ravel(), self.expansions
        if self.maps.dtype != np.uint32 or expansions.dtype != np.uint32 or expansions.ndim != 1:
            raise ValueError("tables of characters are of other types")
        several = words[words >= SEVERAL].astype(np.int64) - SEVERAL
        plain = words[words < SAME]
        ends = (several >> 8) + (several & 0xFF)
        if np.any(plain > sys.maxunicode) or np.any(expansions > sys.maxunicode):
            raise ValueError("a character becomes none")
        if np.any(ends > len(expansions)):
            raise ValueError("a character becomes characters that are not there")
        return self


def _check_pages(page: np.ndarray, values: np.ndarray, dtype: type) -> None:
    if page.shape != (PAGES,) or page.dtype != np.uint16 or values.dtype != dtype:
        raise ValueError("tables of characters are of other types")
    if values.ndim != 2 or values.shape[1] != PAGE or int(page.max()) >= len(values):
        raise ValueError("a character's page is not there")


@functools.cache
def characters(token: str, lowercase: bool, accents: Accents | None) -> Characters:
    """Tables for texts that are brought into lower case, stripped of accents, and cut into tokens.

    `token`: a regular expression of one character of a token.
    `lowercase`, `accents`: as scikit-learn's vectorizers take ``lowercase`` and ``strip_accents``.
    """
    class_page, classes = _deduplicated(_classes(token).reshape(PAGES, PAGE))
    expansions: list[int] = []
    if lowercase or accents is not None:
        maps = np.full((PAGES, PAGE), SAME, np.uint32)
        for at, page in _changed(lowercase, accents):
            for low, became in enumerate(page):
                if became != chr(at * PAGE + low):
                    maps[at, low] = _entry(became, expansions)
        if lowercase and accents != "ascii":
            maps[_SIGMA // PAGE, _SIGMA % PAGE] = CONTEXT
        map_page, maps = _deduplicated(maps)
    else:
        map_page, maps = np.zeros(0, np.uint16), np.zeros((0, PAGE), np.uint32)
    return Characters(class_page, classes, map_page, maps, np.array(expansions, np.uint32)).validate()


@functools.cache
def _everything() -> str:
    """All characters, in their order."""
    return "".join(map(chr, range(sys.maxunicode + 1)))


def _classes(token: str) -> np.ndarray:
    """uint8, shape (code points,)."""
    everything = _everything()
    result = np.zeros(len(everything), np.uint8)
    for bit, one in ((WORD, r"\w"), (TOKEN, token), (SPACE, r"\s")):
        for found in re.finditer(f"(?:{one})+", everything):
            result[found.start() : found.end()] |= bit
    return result


def _changed(lowercase: bool, accents: Accents | None) -> Iterator[tuple[int, list[str]]]:
    """The pages on which some character changes, and what each character of such a page becomes."""
    for at in range(PAGES):
        page = _everything()[at * PAGE : (at + 1) * PAGE]
        lower = page.lower() if lowercase else page
        if accents is None:
            same = lower == page
        elif accents == "unicode":
            same = lower == page == unicodedata.normalize("NFKD", page)
            same = same and not any(map(unicodedata.combining, page))
        else:
            same = False
            if at and unicodedata.normalize("NFKD", lower) == lower:
                yield at, [""] * PAGE
                continue
        if not same:
            yield at, [stripped(one.lower() if lowercase else one, accents) for one in page]


def stripped(text: str, accents: Accents | None) -> str:
    """A text without accents, as scikit-learn's ``strip_accents`` has it."""
    if accents is None or text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    if accents == "ascii":
        return "".join(one for one in decomposed if one.isascii())
    return "".join(one for one in decomposed if not unicodedata.combining(one))


def _entry(became: str, expansions: list[int]) -> int:
    if len(became) == 1:
        return ord(became)
    first = len(expansions) if became else 0
    expansions.extend(map(ord, became))
    return SEVERAL | first << 8 | len(became)


def _deduplicated(pages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each page its place among the different ones, and these."""
    places: dict[bytes, int] = {}
    at = [places.setdefault(page.tobytes(), len(places)) for page in pages]
    values = np.frombuffer(b"".join(places), pages.dtype).reshape(len(places), PAGE)
    return np.array(at, np.uint16), values
