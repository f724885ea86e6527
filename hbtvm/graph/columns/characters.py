"""`Characters`: the properties that Python's `str` and `re` give each character, in tables for kernels.

Tables have two stages: the upper bits of a code point choose one of the distinct pages of 256 entries.
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
"""Bits of a character's class: ``\\w``, token, ``\\s``."""

SEVERAL, CONTEXT, SAME = 1 << 31, (1 << 31) - 1, (1 << 31) - 2
"""Marks of `Characters.maps`: several code points; a code point that depends on its neighbours; no change."""

_SIGMA = 0x3A3  # the only character whose lower case depends on its place in a word


@dataclass(frozen=True, eq=False)
class Characters:
    """Classes of characters, and their replacements before a text is cut into terms."""

    class_page: np.ndarray  # uint16, shape (`PAGES`,): for a code point's upper bits, a page of `classes`
    classes: np.ndarray  # uint8, shape (pages, 256): `WORD`, `TOKEN` and `SPACE` of characters after `maps`
    # Uint16, shape (`PAGES`,); empty if characters stay as they are
    map_page: np.ndarray
    # Uint32, shape (pages, 256): a code point; `SEVERAL`, with the first of several in `expansions` from bit
    # 8 on and their number (0 to 255) below; `CONTEXT`; or `SAME`
    maps: np.ndarray
    expansions: np.ndarray  # uint32, shape (n,): code points

    def validate(self) -> Characters:
        """Return this object.

        Raises `ValueError` if a kernel would read outside of the tables.
        """
        _check_pages(self.class_page, self.classes, np.uint8)
        if len(self.map_page):
            _check_pages(self.map_page, self.maps, np.uint32)
        words, expansions = self.maps.ravel(), self.expansions
        if self.maps.dtype != np.uint32 or expansions.dtype != np.uint32 or expansions.ndim != 1:
            raise ValueError("tables of characters have wrong types")
        several = words[words >= SEVERAL].astype(np.int64) - SEVERAL
        plain = words[words < SAME]
        ends = (several >> 8) + (several & 0xFF)
        if np.any(plain > sys.maxunicode) or np.any(expansions > sys.maxunicode):
            raise ValueError("a character's replacement is not a character")
        if np.any(ends > len(expansions)):
            raise ValueError("a character's replacement is not in the table")
        return self


def _check_pages(page: np.ndarray, values: np.ndarray, dtype: type) -> None:
    if page.shape != (PAGES,) or page.dtype != np.uint16 or values.dtype != dtype:
        raise ValueError("tables of characters have wrong types")
    if values.ndim != 2 or values.shape[1] != PAGE or int(page.max()) >= len(values):
        raise ValueError("a character's page is not in the table")


@functools.cache
def characters(token: str, lowercase: bool, accents: Accents | None) -> Characters:
    """Return tables for lowercasing texts, stripping accents, and cutting tokens.

    `token`: a regular expression of a token's character.
    `lowercase`, `accents`: as ``lowercase`` and ``strip_accents`` of scikit-learn's vectorizers.
    """
    class_page, classes = _deduplicated(_classes(token).reshape(PAGES, PAGE))
    expansions: list[int] = []
    if lowercase or accents is not None:
        maps = np.full((PAGES, PAGE), SAME, np.uint32)
        for at, page in _changed(lowercase, accents):
            for low, replacement in enumerate(page):
                if replacement != chr(at * PAGE + low):
                    maps[at, low] = _entry(replacement, expansions)
        if lowercase and accents != "ascii":
            maps[_SIGMA // PAGE, _SIGMA % PAGE] = CONTEXT
        map_page, maps = _deduplicated(maps)
    else:
        map_page, maps = np.zeros(0, np.uint16), np.zeros((0, PAGE), np.uint32)
    return Characters(class_page, classes, map_page, maps, np.array(expansions, np.uint32)).validate()


@functools.cache
def _everything() -> str:
    """Return all characters in order."""
    return "".join(map(chr, range(sys.maxunicode + 1)))


def _classes(token: str) -> np.ndarray:
    """Return the classes of all characters, uint8, shape (code points,)."""
    everything = _everything()
    result = np.zeros(len(everything), np.uint8)
    for bit, pattern in ((WORD, r"\w"), (TOKEN, token), (SPACE, r"\s")):
        for match in re.finditer(f"(?:{pattern})+", everything):
            result[match.start() : match.end()] |= bit
    return result


def _changed(lowercase: bool, accents: Accents | None) -> Iterator[tuple[int, list[str]]]:
    """Yield the pages on which some character changes, with the replacements of all of the page."""
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
            yield at, [stripped(c.lower() if lowercase else c, accents) for c in page]


def stripped(text: str, accents: Accents | None) -> str:
    """Return a text without accents, as scikit-learn's ``strip_accents`` does."""
    if accents is None or text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    if accents == "ascii":
        return "".join(c for c in decomposed if c.isascii())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _entry(replacement: str, expansions: list[int]) -> int:
    if len(replacement) == 1:
        return ord(replacement)
    first = len(expansions) if replacement else 0
    expansions.extend(map(ord, replacement))
    return SEVERAL | first << 8 | len(replacement)


def _deduplicated(pages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each page's place among the distinct pages, and these."""
    places: dict[bytes, int] = {}
    at = [places.setdefault(page.tobytes(), len(places)) for page in pages]
    values = np.frombuffer(b"".join(places), pages.dtype).reshape(len(places), PAGE)
    return np.array(at, np.uint16), values
