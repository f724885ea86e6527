"""The site builds without a warning, and links in pages lead to files that are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


def _slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MyST make it."""
    kept = "".join(one for one in heading.lower() if one.isalnum() or one in " -_")
    return kept.replace(" ", "-")
