"""Tables and charts of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from html import escape

from hbtvm.logs.record import Record
from hbtvm.report.ranking import Ranking
from hbtvm.report.story import Chapter, Story
from hbtvm.report.style import MOST
from hbtvm.report.svg import Chart, counting, linear, seconds
from hbtvm.words.printable import shown
from hbtvm.words.quantities import config, duration

_SHOWN = 12.0  # the chart omits candidates slower than the chapter's best by more than this factor


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Container[int] = (),
    *,
    matrix: bool = False,
) -> str:
    """Return a table of HTML cells; columns in `numbers` are right-aligned.

    On narrow screens, each row becomes a block of lines. A `matrix`, whose cells are compared along rows,
    scrolls instead, and its headings are HTML too.
    """

    def line(cells: Sequence[str], tag: str) -> str:
        parts = []
        for i, cell in enumerate(cells):
            named = f' data-head="{escape(heads[i])}"' if tag == "td" and not matrix else ""
            parts.append(f"<{tag}{' class=n' if i in numbers else ''}{named}>{cell}</{tag}>")
        return f"<tr>{''.join(parts)}</tr>"

    named = heads if matrix else [escape(head) for head in heads]
    body = "".join(line(row, "td") for row in rows)
    kind = "scroll" if matrix else "scroll cards"
    return f'<div class="{kind}"><table><thead>{line(named, "th")}</thead><tbody>{body}</tbody></table></div>'


def call_words(record: Record | None) -> str:
    """Return a winner's times of whole calls in words, such as ``2.1 µs (array), 46 µs (frame)``."""
    times = {} if record is None else record.extra.get("calls", {})
    return ", ".join(f"{duration(seconds)} ({kind})" for kind, seconds in times.items()) or "-"


def chart_of_search(chapter: Chapter, colours: Mapping[str, int]) -> str:
    """Return tuning curves with every candidate; empty if all failed.

    Candidates slower than the chart shows are triangles at the top edge, failures crosses at the bottom.
    """
    winner = chapter.winner()
    worked = [record.cost for record in chapter.trials if record.times]
    if winner is None or not worked:
        return ""
    limit = _SHOWN * min(worked)
    within = [cost for cost in worked if cost <= limit]
    chart = Chart(
        counting(len(chapter.trials)),
        seconds(within),
        "trials of this workload",
        "time of the kernel",
        "tuning curves: best time so far by trials",
    )
    for number, record in enumerate(chapter.trials, 1):
        tip = f"trial {number}: {record.strategy} "
        choices = shown(config(record.config), MOST)
        colour = colours[record.strategy]
        if not record.times:
            kind = record.error["kind"] if record.error else "?"
            chart.mark(number, "failed", colour, shown(f"{tip}failed ({kind})", MOST) + f"\n{choices}")
            continue
        tip = shown(f"{tip}{duration(record.cost)}", MOST) + f"\n{choices}"
        if record.cost <= limit:
            chart.dot(number, record.cost, colour, tip)
        else:
            chart.mark(number, "slower", colour, tip)
    for strategy in chapter.strategies:
        points = [(x, y) for x, y in chapter.curve(strategy) if y <= limit]
        if points:
            tip = shown(f"{strategy}: {duration(points[-1][1])}", MOST)
            chart.steps(points, colours[strategy], tip)
    return chart.text()


def chart_of_ranking(ranking: Ranking, colours: Mapping[str, int]) -> str:
    """Return a chart of predicted scores against measured times."""
    fastest = min(time for _, _, time in ranking.points)
    points = [point for point in ranking.points if point[2] <= _SHOWN * fastest]
    chart = Chart(
        linear([score for _, score, _ in points]),
        seconds([time for _, _, time in points]),
        "predicted score (higher: expected to be faster)",
        "measured time of the kernel",
        "predicted against measured",
    )
    for strategy, score, time in points:
        tip = shown(f"{strategy}: score {score:.2f}, {duration(time)}", MOST)
        chart.dot(score, time, colours[strategy], tip, strong=True)
    return chart.text()


def machine_facts(story: Story) -> list[tuple[str, str, str, str]]:
    """Return targets and versions in the log: name, features, versions, number of records."""
    numbers: Counter[tuple[str, str, str]] = Counter()
    for record in story.records:
        target = dict(record.target)
        features = target.pop("features", [])
        named = " ".join(map(str, features)) if isinstance(features, list | tuple) else str(features)
        versions = f"hbtvm {record.hbtvm or '?'}, TVM {record.tvm or '?'}"
        numbers[config(dict(sorted(target.items()))), named, versions] += 1
    return [(*key, f"{number:,}") for key, number in numbers.most_common()]
