"""Draw pictures of the results from the tables in ``benchmarks/figures``.

    python -m benchmarks.pictures

The README and the pages of results show them.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.common import tables
from benchmarks.ratios import Bar, ratios

FIGURES = Path(__file__).parent / "figures"
SPREAD = "Bars: geometric means. Lines: slowest to fastest case; orange: hbtvm is slower."

Groups = list[tuple[str, Sequence[Bar]]]
Table = Sequence[dict[str, str]]
MEAN = "geometric mean"


def draw(folder: Path = FIGURES) -> list[Path]:
    """Write the pictures; returns their files."""
    paths = []
    for name, (title, groups, caption) in PICTURES.items():
        path = folder / f"{name}.svg"
        path.write_text(ratios(groups(), title, caption), encoding="utf-8")
        paths.append(path)
    return paths


def read(name: str) -> dict[str, list[dict[str, str]]]:
    """Return the first table below each heading of a page of figures."""
    return tables((FIGURES / f"{name}.md").read_text(encoding="utf-8"))


def number(cell: str) -> float | None:
    """Return a cell's ratio; None if it has none."""
    match = re.fullmatch(r"\W*([\d,.]+)[x×]\W*", cell)
    return float(match[1].replace(",", "")) if match else None


def _bar(label: str, table: Table, column: str) -> Bar:
    """Return the geometric mean, the smallest and the largest ratio in a table's column."""
    means = [row for row in table if row.get("pipeline") == MEAN]
    cells = [ratio for row in table if row not in means and (ratio := number(row[column])) is not None]
    mean = number(means[0][column]) if means else statistics.geometric_mean(cells)
    assert mean is not None
    return Bar(label, mean, *((min(cells), max(cells)) if len(cells) > 1 else ()))


def _rows(heading: str) -> str:
    """Return the rows per call that a heading names."""
    return re.match(r"[\d,]+ rows?", heading)[0]  # type: ignore[index]


def _pipelines(column: str) -> list[Bar]:
    return [_bar(_rows(heading), table, column) for heading, table in read("pipelines").items()]


def _cells() -> list[dict[str, str]]:
    return read("peers")["Times"]


def _by_rows(table: Table) -> list[Bar]:
    """Return a bar for each number of rows per call in the table of trees."""
    sizes: dict[str, list[dict[str, str]]] = {}
    for row in table:
        sizes.setdefault(row["rows"], []).append(row)
    return [
        _bar(f"{size} row{'s' * (size != '1')}", cells, "hbtvm over best peer")
        for size, cells in sizes.items()
    ]


def _operators() -> list[Bar]:
    return [
        _bar(_rows(heading), table, "over best")
        for heading, table in read("operators").items()
        if "float32, 1 thread" in heading
    ]


def _summary() -> Groups:
    return [
        ("Pipelines, from a data frame", _pipelines("frame: over best")),
        ("Pipelines, from arrays that are ready", _pipelines("arrays: over best")),
        ("Tree ensembles", _by_rows(_cells())),
        ("Single estimators", _operators()),
    ]


def _trees() -> Groups:
    models: dict[str, list[dict[str, str]]] = {}
    for row in _cells():
        models.setdefault(row["model"].split()[0], []).append(row)
    return [(model, _by_rows(cells)) for model, cells in models.items()]


def _each_pipeline() -> Groups:
    cells: dict[str, list[dict[str, str]]] = {}
    for table in read("pipelines").values():
        for row in table:
            cells.setdefault(row["pipeline"], []).append(row)
    del cells[MEAN]
    ways = {"frame": "frame: over best", "arrays": "arrays: over best"}
    return [(name, [_bar(way, rows, column) for way, column in ways.items()]) for name, rows in cells.items()]


def _kinds() -> Groups:
    table = next(iter(read("operators").values()))
    (name, *columns) = table[0]
    groups: Groups = []
    for row in table:
        if not row[name].startswith(("*", "slowest")):
            groups.append((row[name], [_bar(_rows(column), [row], column) for column in columns]))
    return groups


def _recursive() -> Groups:
    groups: Groups = []
    for heading, table in read("recursive").items():
        if heading.startswith("Times"):
            models: dict[str, list[dict[str, str]]] = {}
            for row in table:
                models.setdefault(row["model"], []).append(row)
            threads = heading.removeprefix("Times, ").removesuffix(" (ms)")
            groups.append((threads, [_bar(model, rows, "over best") for model, rows in models.items()]))
    return groups


def _serve() -> Groups:
    return [
        (heading, [_bar(row["server"], [row], "over MLServer") for row in table])
        for heading, table in read("serve").items()
        if all(row["over MLServer"] for row in table)
    ]


PICTURES: dict[str, tuple[str, Callable[[], Groups], str]] = {
    "summary": ("hbtvm's speed over the fastest library with the same answers", _summary, SPREAD),
    "summary-trees": ("Trees: hbtvm's speed over the fastest library", _trees, SPREAD),
    "summary-pipelines": ("Pipelines: hbtvm's speed over the fastest library", _each_pipeline, SPREAD),
    "summary-operators": ("Estimators: hbtvm's speed over the fastest library", _kinds, "Geometric means."),
    "summary-recursive": ("Recursive models: hbtvm's speed over the fastest library", _recursive, SPREAD),
    "summary-serve": ("Requests per second over MLServer's", _serve, "Constant: answers without a model."),
}
"""The title, the bars and the caption of each picture."""

if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n\n")[0]).parse_args()
    for written in draw():
        print(written)
