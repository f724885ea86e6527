"""The site builds without a warning, and links in pages lead to files that are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common import markdown
from tests.docs.pages import PAGES, ROOT, links


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Among warnings are links within the site that lead nowhere, and docstrings that can't be read."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "docs",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference" / "python.html").read_text()
    assert "hbtvm.runtime.model.Model.predict_proba" in page
    assert "--max-waiting" in (tmp_path / "reference" / "commands.html").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files(name: str) -> None:
    for link in links(name):
        target, _, anchor = link.partition("#")
        path = (PAGES[name].parent / target) if target else PAGES[name]
        assert path.exists(), f"{name} links to {link}"
        if anchor and path.suffix == ".md":
            headings = [line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#")]
            assert anchor in {_slug(one) for one in headings}, f"{name} links to {link}"


TABLES = [
    path
    for path in (
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("benchmarks/**/*.md"),
    )
    if "_build" not in path.parts
]


def _cells(line: str) -> int:
    """Count the cells of a table's line; an escaped `|` separates none."""
    return len(re.split(r"(?<!\\)\|", line.strip().strip("|")))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rows_of_tables_have_as_many_cells_as_their_header(path: Path) -> None:
    """Renderers drop the cells beyond the header's."""
    header = 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith("|"):
            header = 0
            continue
        header = header or _cells(line)
        assert _cells(line) == header, f"{path.relative_to(ROOT)}:{number}: {line}"


def test_tables_of_benchmarks_escape_what_separates_cells() -> None:
    table = markdown(["pipeline", "time"], [["impute | scale", "3"], ["ordinal", "25 | 40"]])
    assert {_cells(line) for line in table.splitlines()} == {2}
    assert len({len(line) for line in table.splitlines()}) == 1


def _slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MyST make it."""
    kept = "".join(one for one in heading.lower() if one.isalnum() or one in " -_")
    return kept.replace(" ", "-")
