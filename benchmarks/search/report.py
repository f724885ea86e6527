"""The results as tables and plots."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import markdown
from benchmarks.search.quality import Quality
from benchmarks.search.replay import Run
from benchmarks.search.studies import Study

_EARLY = 4
"""Trials before which plots need not show how slow a search's best is."""

Runs = Mapping[str, Mapping[str, Sequence[Run]]]
"""By variant, by space: one run for each seed."""


def needed(runs: Sequence[Run], trials: int) -> np.ndarray:
    """Trials that each run needed; one that did not arrive counts as twice those it had."""
    return np.array([min(run.needed(), 2.0 * trials) for run in runs])


def table(runs: Runs, trials: int, sets: Mapping[str, Collection[str]] | None = None) -> str:
    """What each variant came to, against the first.

    Means over spaces are geometric, so that each counts alike; of each space's seeds
    the mean is taken, as a median hides bad luck.

    Parameters
    ----------
    sets
        Names of spaces, by the name of a column with the mean over them.
    """
    rows = []
    spaces = list(next(iter(runs.values())))
    means = {
        name: np.array([needed(by_space[space], trials).mean() for space in spaces])
        for name, by_space in runs.items()
    }
    parts = {
        title: chosen
        for title, names in (sets or {}).items()
        if (chosen := np.array([space in names for space in spaces])).any() and not chosen.all()
    }
    first = next(iter(means.values()))
    for name, by_space in runs.items():
        flat = [run for own in by_space.values() for run in own]
        medians = np.array([np.median(needed(own, trials)) for own in by_space.values()])
        lengths = np.array([len(run.curve) for run in flat])
        rows.append(
            [
                name,
                f"{_geometric(means[name]):.1f}",
                f"{_geometric(means[name] / first):.2f}",
                *(f"{_geometric(means[name][chosen]):.1f}" for chosen in parts.values()),
                f"{np.mean(medians <= 64):.0%}",
                f"{np.mean([run.needed() <= 64 for run in flat]):.0%}",
                f"{np.mean([run.padded(trials).mean() for run in flat]):.3f}",
                f"{1e3 * np.sum([run.planning for run in flat]) / lengths.sum():.1f}",
                f"{1e3 * np.sum([run.training for run in flat]) / lengths.sum():.1f}",
            ]
        )
    header = [
        "search",
        "trials to 5%",
        "of the first's",
        *parts,
        "spaces in 64",
        "runs in 64",
        "area",
        "planning, ms/trial",
        "training, ms/trial",
    ]
    return markdown(header, rows)


def _geometric(values: np.ndarray) -> float:
    return float(np.exp(np.log(values).mean()))


def by_space(runs: Runs, trials: int) -> str:
    """Median trials of each variant on each space."""
    names = list(next(iter(runs.values())))
    rows = [
        [name, *(f"{np.median(needed(own[name], trials)):.0f}" for own in runs.values())] for name in names
    ]
    return markdown(["median trials to 5%", *runs], rows)


def quality_table(found: Mapping[tuple[str, str], Quality]) -> str:
    """Ranking quality by model and features."""
    rows = [
        [
            model,
            features,
            f"{one.recall:.2f}",
            f"{one.accuracy:.3f}",
            f"{1e3 * one.training:.0f} ms",
            f"{1e3 * one.predicting:.1f} ms",
        ]
        for (model, features), one in found.items()
    ]
    return markdown(["model", "features", "recall@10", "pairs", "training", "scoring 1,000"], rows)


def plot(study: Study, runs: Runs, trials: int, path: Path) -> None:
    """Draw speed against trials: the mean over seeds on each space, and over the spaces.

    Raises
    ------
    ImportError
        If matplotlib, an extra, is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    spaces = list(next(iter(runs.values())))
    columns = 4
    height = max(2, -(-(len(spaces) + 4) // columns))
    figure = pyplot.figure(figsize=(4 * columns, 3 * height))
    grid = figure.add_gridspec(height, columns)
    # The mean of all spaces is what counts most: it has a quarter of a large sheet to itself.
    places = [(row, column) for row in range(height) for column in range(columns) if row > 1 or column > 1]
    panels = [grid[:2, :2], *(grid[place] for place in places)]
    for panel, space in zip(panels, ["all spaces", *spaces], strict=False):
        axis = figure.add_subplot(panel)
        lowest = 1.0
        for name, own in runs.items():
            chosen = [run for key, many in own.items() if space in (key, "all spaces") for run in many]
            curves = np.array([run.padded(trials) for run in chosen])
            _line(axis, name, curves, spread=space != "all spaces")
            lowest = min(lowest, float(curves.mean(axis=0)[:_EARLY].max()))
        axis.set_title(space, fontsize=9)
        axis.set_ylim(max(0.4, lowest - 0.1), 1.02)
        axis.axhline(1 / 1.05, color="grey", linewidth=0.5, linestyle=":")
        axis.set_xlabel("trials", fontsize=8)
        axis.set_ylabel("speed, of the space's best", fontsize=8)
        axis.tick_params(labelsize=8)
        if space == "all spaces":
            axis.legend(fontsize=10, loc="lower right")
    figure.suptitle(study.title)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _line(axis: Any, name: str, curves: np.ndarray, spread: bool) -> None:
    steps = np.arange(1, curves.shape[1] + 1)
    (line,) = axis.plot(steps, curves.mean(axis=0), label=name, linewidth=1.3)
    if spread:
        low, high = np.quantile(curves, [0.25, 0.75], axis=0)
        axis.fill_between(steps, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
