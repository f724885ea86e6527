"""Regular expressions of tokens that kernels support: a number of characters of one class."""

from __future__ import annotations

import re

from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.characters import TOKEN, WORD, characters
from hbtvm.words.printable import shown

_PATTERN = re.compile(r"(?:\(\?u\))?(?P<left>\\b)?(?P<body>.*?)(?P<right>\\b)?", re.DOTALL)
_ITEM = re.compile(
    r"(?P<atom>\\[wWdDsS]|\[\^?(?:\\.|[^\]\\\[])+\])(?P<times>\+|\{(?P<least>\d{1,4})(?P<more>,)?\})?"
)


def token_of(pattern: str, where: Where) -> tuple[str, int, bool]:
    r"""The class of a token's characters, their least number, and whether a token is a whole word.

    `pattern`: a ``token_pattern``, such as ``(?u)\b\w\w+\b``.
    Raises `UnsupportedModel` if it is more than some characters of one class, between word boundaries or not.
    """
    match = _PATTERN.fullmatch(pattern)
    assert match is not None
    body, left, right = match["body"], bool(match["left"]), bool(match["right"])
    if body.startswith("(") and body.endswith(")") and not body.startswith("(?") and body.count("(") == 1:
        body = body[1:-1]
    items = _items(body)
    if items is None:
        raise _refused(pattern, where)
    token, least = items
    try:
        classes = characters(token, False, None).classes
    except re.error:
        raise _refused(pattern, where) from None
    if token == r"\w":
        # The longest run of such characters ends at word boundaries anyway.
        return token, least, True
    words_only = not bool(((classes & (TOKEN | WORD)) == TOKEN).any())
    if left != right or (left and not words_only):
        raise _refused(pattern, where)
    return token, least, left


def _items(body: str) -> tuple[str, int] | None:
    """Return the class that all parts of a pattern share, and the least number of characters."""
    at, least, open_ended, atoms = 0, 0, 0, set()
    while at < len(body):
        item = _ITEM.match(body, at)
        if item is None:
            return None
        atoms.add(item["atom"])
        least += 1 if item["least"] is None else int(item["least"])
        open_ended += item["times"] == "+" or item["more"] is not None
        at = item.end()
    if len(atoms) != 1 or not open_ended or not least:
        return None
    return atoms.pop(), least


def _refused(pattern: str, where: Where) -> Exception:
    return where.unsupported(
        f"has the token_pattern {shown(pattern, 80)!r}, which is not supported; supported are "
        r"some characters of one class, such as (?u)\b\w\w+\b, \w+ or [a-z]{3,}."
    )
