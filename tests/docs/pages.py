"""Pages of the documentation, and the code in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "_build" not in path.parts
}

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """Code between fences: its language, empty for commands, its text, and the line where it begins."""

    language: str
    text: str
    line: int


def blocks(name: str) -> list[Block]:
    """All of a page."""
    text = PAGES[name].read_text()
    return [Block(one[1], one[2], text.count("\n", 0, one.start()) + 2) for one in _FENCE.finditer(text)]


def commands(name: str) -> list[str]:
    """The lines of a page that call hbtvm; those that go on in the next are joined."""
    found = []
    for block in blocks(name):
        if not block.language:
            lines = block.text.replace("\\\n", " ").splitlines()
            found += [line.strip() for line in lines if line.strip().startswith("hbtvm ")]
    return found


def links(name: str) -> list[str]:
    """What a page links to, but addresses."""
    text = _FENCE.sub("", PAGES[name].read_text())
    return [one for one in _LINK.findall(text) if "://" not in one]
