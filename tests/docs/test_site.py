"""The site builds without a warning, and links in pages lead to files that are there."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hbtvm
from benchmarks import pictures
from benchmarks.common import markdown, tables
from tests.browser import look, needs_browser
from tests.docs.pages import PAGES, ROOT, links


def sphinx(source: Path, out: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build a folder of pages with the site's configuration; warnings are errors."""
    options = ["-q", "-W", "--keep-going", "-b", "html", "-c", "docs"]
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(out)]
    environment = {**os.environ, "DOCS_URL": "", **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning.

    Among warnings are links within the site that lead nowhere, and docstrings that can't be read.
    """
    out = tmp_path_factory.mktemp("site")
    done = sphinx(ROOT / "docs", out)
    assert done.returncode == 0, done.stderr
    return out


def test_the_site_has_its_parts(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text()
    assert "hbtvm.runtime.model.Model.predict_proba" in page
    assert "--max-waiting" in (site / "reference" / "commands.html").read_text()
    landing = (site / "index.html").read_text()
    assert landing.count("sd-card-title") == 3
    assert "summary.svg" in landing
    assert "copybutton.js" in landing
    assert 'property="og:description" content="hbtvm compiles' in landing
    assert "The hbtvm authors" in landing
    # Nothing on a page comes from another site.
    for path in site.rglob("*.html"):
        assert not re.search(r"<(?:script|img|link)[^>]*(?:src|href)=\"(?:https?:)?//", path.read_text()), (
            path
        )


@needs_browser
def test_pages_fit_screens_and_show_their_pictures(site: Path) -> None:
    pages = sorted(
        str(path.relative_to(site)) for path in site.rglob("*.html") if "_static" not in path.parts
    )
    narrow, errors = look(site, pages, (400,))
    wide, more = look(site, [name for name in pages if name.startswith(("index", "results/"))], (1280,))
    assert [*errors, *more] == []
    for shown in (*narrow, *wide):
        assert shown.wide <= shown.width, f"{shown.page} scrolls sideways at {shown.width} pixels"
        assert shown.hidden == 0, f"a picture of {shown.page} is not shown"
    with_pictures = {shown.page for shown in wide if shown.pictures}
    assert {"index.html", "results/trees.html", "results/pipelines.html"} <= with_pictures


@needs_browser
def test_the_browser_notices_what_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        "<body><article><div style='width:900px'>wide</div><img src='none.svg'></article>"
        "<script>console.error('wrong')</script></body>"
    )
    [shown], console = look(tmp_path, ["page.html"], (400,))
    assert shown.wide >= 900 and (shown.pictures, shown.hidden) == (1, 1)
    assert any("wrong" in line for line in console)


def test_a_published_site_has_social_cards(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    (source / "index.md").write_text("# A page\n\nIt says what it is about.\n")
    done = sphinx(source, out, DOCS_URL="https://docs.example.org/")
    assert done.returncode == 0, done.stderr
    image = re.search(
        r'og:image" content="https://docs.example.org/([^"]*)"', (out / "index.html").read_text()
    )
    assert image is not None
    assert (out / image[1]).read_bytes().startswith(b"\x89PNG")


def test_pictures_show_the_figures(tmp_path: Path) -> None:
    """`python -m benchmarks.pictures` draws the checked-in files again."""
    for path in pictures.draw(tmp_path):
        assert path.read_text() == (pictures.FIGURES / path.name).read_text(), path.name


def test_the_readme_lists_what_is_slower() -> None:
    """Every cell of the figures below 0.95 has its ratio in the table of the README."""
    slower = [
        round(number, 1)
        for name, columns in (
            ("pipelines", ("frame: over best", "arrays: over best")),
            ("operators", ("over best",)),
            ("peers", ("hbtvm over best peer",)),
        )
        for table in pictures.read(name).values()
        for row in table
        for column in columns
        if column in row and (number := pictures.number(row[column])) is not None and number < 0.95
    ]
    listed = tables((ROOT / "README.md").read_text())["Where hbtvm is slower"]
    ratios = [float(cell.strip(" ×")) for row in listed for cell in row["speed-up"].split(";")]
    assert sorted(ratios) == sorted(slower) != []
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_extras_of_pip_install_are_declared() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    named = {
        extra.strip()
        for path in PAGES.values()
        for extras in re.findall(r"pip install '[^'\[]*\[([^\]…]*)\]'", path.read_text())
        for extra in extras.split(",")
    }
    assert {"tune", "demo"} <= named <= set(config["options.extras_require"])
    wheels = {
        version for path in PAGES.values() for version in re.findall(r"hbtvm-([\d.]+)-py3", path.read_text())
    }
    assert wheels == {hbtvm.__version__}
    needed = config["options.extras_require"]["demo"]
    assert "hbtvm[tune-cpu,pandas]" in needed and "lightgbm" in needed and "scikit-learn" in needed


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


RATIO = re.compile(r"speed-up|faster|(hbtvm |frame: |arrays: )?over (the )?best( peer)?")


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_ratios_are_in_the_second_column(path: Path) -> None:
    """Phones show the first columns of a table."""
    for heading, table in tables(path.read_text()).items():
        columns = list(table[0]) if table else []
        places = [place for place, name in enumerate(columns) if place and RATIO.fullmatch(name)]
        assert places == list(range(1, len(places) + 1)), f"{path.relative_to(ROOT)}: {heading}: {columns}"


def test_tables_of_benchmarks_escape_what_separates_cells() -> None:
    lines = [["impute | scale", "3", "2x"], ["ordinal", "25 | 40", "1x"]]
    table = markdown(["pipeline", "time", "over best"], lines, second=["over best"])
    assert {_cells(line) for line in table.splitlines()} == {3}
    assert tables(f"# Times\n\n{table}\n")["Times"][0] == {
        "pipeline": "impute | scale",
        "over best": "2x",
        "time": "3",
    }
    assert len({len(line) for line in table.splitlines()}) == 1


def _slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MyST make it."""
    kept = "".join(one for one in heading.lower() if one.isalnum() or one in " -_")
    return kept.replace(" ", "-")
