"""Parse trees in bracketed text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hbtvm.errors import InputError

_PARTS = re.compile(r"\(|\)|[^\s()]+")


@dataclass
class Node:
    """A bracket, or a word."""

    token: str | None = None
    children: list[Node] = field(default_factory=list)


def parse(text: str, structure: int, labels: str) -> Node:
    """Return the tree of a text; see `hbtvm.recursive.structures.brackets`.

    Raises
    ------
    InputError
        If it is not a tree; it names the structure and the character.
    """
    if not isinstance(text, str):
        raise InputError(f"structure {structure}: it is a {type(text).__name__}; expected a text.")
    roots: list[Node] = []
    path: list[Node] = []
    opened = False  # whether a bracket has just opened, so that a label may follow
    for match in _PARTS.finditer(text):
        part, where = match[0], f"structure {structure}, character {match.start()}"
        if part == ")":
            if not path:
                raise InputError(f"{where}: a bracket closes that was not opened.")
            _closed(path.pop(), where, labels)
            opened = False
        elif part != "(" and opened and labels != "none":
            path[-1].token = part if labels == "words" else None
            opened = False
        else:
            node = Node(None if part == "(" else part)
            (path[-1].children if path else roots).append(node)
            opened = part == "("
            if opened:
                path.append(node)
        if len(roots) > 1:
            raise InputError(f"{where}: a second tree begins; expected one tree in each text.")
    if path or not roots:
        problem = f"{len(path)} brackets are open at its end" if path else "it is empty"
        raise InputError(f"structure {structure}: {problem}; expected a tree such as (3 (2 It) (4 works)).")
    return roots[0]


def _closed(node: Node, where: str, labels: str) -> None:
    """Close a bracket; a label with a single word becomes a leaf."""
    if not node.children and node.token is None:
        raise InputError(f"{where}: a bracket is empty.")
    words = [child for child in node.children if not child.children and child.token is not None]
    if labels == "drop" and len(node.children) == 1 and words:
        node.token, node.children = words[0].token, []
