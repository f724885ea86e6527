"""The report: a log as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hbtvm.comparison.result import Comparison
from hbtvm.logs.ranking import is_final
from hbtvm.report.candidates import every_candidate, is_busy
from hbtvm.report.gains import gains
from hbtvm.report.parts import (
    call_words,
    chart_of_ranking,
    chart_of_search,
    machine_facts,
    table,
)
from hbtvm.report.ranking import Ranking
from hbtvm.report.story import Chapter, Story
from hbtvm.report.style import document, text
from hbtvm.words.quantities import config, count, duration, model_shape

_FINALS = (
    "At the end of a search, its fastest candidates are measured again, in turns. The medians of that final "
    "decide what a package holds. A single reading of the search can be lucky and look faster."
)

DETAILED = 30
"""Maximal number of workloads with their own charts: the last in the log, to keep the page readable."""


def render(
    story: Story,
    title: str,
    rankings: Mapping[int, Ranking],
    comparison: Comparison | None = None,
    made_by: str = "",
) -> str:
    """Return the page as HTML.

    `title`: the page's title.
    `rankings`: predictions for candidates, by the chapter's index.
    `comparison`: of a package with its library.
    `made_by`: last line of the page.
    """
    colours = {name: i % 8 for i, name in enumerate(story.strategies)}
    first = max(len(story.chapters) - DETAILED, 0)
    sections = [_overview(story, colours)]
    if comparison is not None:
        sections.append(_against_library(comparison))
    sections.append(_winners(story.chapters[first:]))
    if first:
        sections.append(
            f"<p>Charts of the last {DETAILED} workloads; {first} more are in the table above.</p>"
        )
    for index in range(first, len(story.chapters)):
        sections.append(_chapter(story.chapters[index], rankings.get(index), colours))
    sections += [_failures(story), _machines(story)]
    body = "\n".join(section for section in sections if section)
    return document(title, body, made_by)


def _overview(story: Story, colours: Mapping[str, int]) -> str:
    failed = sum(record.error is not None for record in story.records)
    dates = sorted(record.date for record in story.records)
    facts = [
        f"<b>{len(story.records):,}</b> records",
        f"<b>{failed:,}</b> failed",
        f"<b>{len(story.chapters):,}</b> workloads",
    ]
    if dates:
        facts.append(
            f"{text(dates[0][:16].replace('T', ' '))} to {text(dates[-1][:16].replace('T', ' '))} UTC"
        )
    busy = sum(map(is_busy, story.records))
    if busy:
        facts.append(f'<span class="warn"><b>{busy:,}</b> measured on a busy machine</span>')
    if story.skipped:
        facts.append(f"<b>{story.skipped:,}</b> unreadable lines")
    most = max((len(chapter.trials) for chapter in story.chapters), default=1)
    rows = []
    for chapter in story.chapters:
        winner = chapter.winner()
        rows.append(
            (
                text(chapter.name),
                chapter.size,
                text(chapter.workload.get("threads", "-"), 20),
                text(winner.strategy) if winner else "all failed",
                duration(winner.cost) if winner else "-",
                duration(winner.cost / chapter.rows) if winner and chapter.rows else "-",
                text(call_words(winner)),
                _bar(chapter, colours, most),
            )
        )
    units = " or ".join(sorted({chapter.unit for chapter in story.chapters})) or "row"
    times = ("kernel", f"per {units}", "call")
    heads = ("model", "call size", "threads", "fastest", *times, "trials by strategy")
    note = (
        "<p class='warn'>The machine was busy during some measurements: candidates waited for a processor, "
        "or a reference got slower. Their times may be too long; the lists of candidates mark them.</p>"
        if busy
        else ""
    )
    return (
        f'<p class="facts">{" · ".join(facts)}</p>{note}{gains(story)}<h2>Trials by workload</h2>'
        f"{_legend(story.strategies, colours)}{table(heads, rows, numbers=(1, 2, 4, 5))}"
    )


def _bar(chapter: Chapter, colours: Mapping[str, int], most: int) -> str:
    parts = []
    for strategy in chapter.strategies:
        tried, failed = chapter.counts(strategy)
        for number, kind in ((tried - failed, ""), (failed, " failed")):
            if number:
                tip = f"{strategy}: {count(number, 'trial')}{' that failed' if kind else ''}"
                width = 100 * number / max(most, 1)
                look = f'class="b{colours[strategy]}{kind}" style="width:{width:.2f}%"'
                parts.append(f'<i {look} title="{text(tip)}"></i>')
    return f'<span class="bar">{"".join(parts)}</span> {len(chapter.trials):,}'


def _legend(strategies: Sequence[str], colours: Mapping[str, int]) -> str:
    keys = "".join(f'<span><i class="b{colours[name]}"></i>{text(name)}</span>' for name in strategies)
    return f'<p class="legend">{keys}<span>pale in the bars: failed</span></p>'


def _against_library(comparison: Comparison) -> str:
    tables = "".join(
        table(heads, [tuple(map(text, row)) for row in rows], [heads.index(head) for head in numbers])
        for heads, rows, numbers in comparison.tables(1)
    )
    notes = "".join(f"<p>{text(note, 1000)}</p>" for note in (comparison.verdict, comparison.conditions))
    return f"<h2>Against the library</h2>{notes}{tables}"


def _winners(chapters: Sequence[Chapter]) -> str:
    """Return a table of the fastest candidates, one per column, with knobs as rows."""
    won = [(chapter, winner) for chapter in chapters if (winner := chapter.winner()) is not None]
    if not won:
        return ""
    names = list(dict.fromkeys(chapter.name for chapter, _ in won))
    heads = ["knob"]
    for chapter, _ in won:
        rows = chapter.size if chapter.rows else "workload"
        where = f"model {names.index(chapter.name) + 1}<br>" if len(names) > 1 else ""
        heads.append(f"{where}{rows}")
    lines = [
        ["strategy", *(text(winner.strategy) for _, winner in won)],
        ["kernel", *(duration(winner.cost) for _, winner in won)],
        ["call", *(text(call_words(winner)) for _, winner in won)],
    ]
    for knob in dict.fromkeys(knob for _, winner in won for knob in winner.config):
        lines.append([text(knob), *(text(str(winner.config.get(knob, ""))) for _, winner in won)])
    items = "".join(f"<li>{text(name)}</li>" for name in names) if len(names) > 1 else ""
    listed = f"<ol class='models'>{items}</ol>" if items else ""
    note = f"<p>{_FINALS}</p>" if any(is_final(winner) for _, winner in won) else ""
    return f"<h2>Winning schedules</h2>{note}{listed}{table(heads, lines, matrix=True)}"


def _chapter(chapter: Chapter, ranking: Ranking | None, colours: Mapping[str, int]) -> str:
    rows = f"{chapter.size} in a call" if chapter.rows else "workload"
    threads = chapter.workload.get("threads")
    suffix = f", {count(threads, 'thread')}" if isinstance(threads, int) else ""
    shape = model_shape(chapter.workload)
    about = f"<p>{text(shape)}</p>" if shape != chapter.name else ""
    parts = [f"<h2>{text(chapter.name)}: {rows}{suffix}</h2>{about}<div class='charts'>"]
    search = chart_of_search(chapter, colours)
    if search:
        parts.append(
            f"<figure>{search}<figcaption>Best so far of each strategy (lines) and every candidate, by the "
            "readings of the search. Triangles at the top are slower than the chart shows; crosses at the "
            "bottom failed.</figcaption></figure>"
        )
    if ranking is not None and ranking.points:
        parts.append(
            f"<figure>{chart_of_ranking(ranking, colours)}<figcaption>Predicted against measured: a cost "
            "model fitted to four fifths of the log ranks the rest. Of two candidates of one strategy it "
            f"orders {ranking.accuracy:.0%} of the pairs rightly.</figcaption></figure>"
        )
    parts.append("</div>")
    lines = []
    for strategy in chapter.strategies:
        tried, failed = chapter.counts(strategy)
        best = chapter.winner(strategy)
        lines.append(
            (
                text(strategy),
                f"{tried:,}",
                f"{failed:,}",
                duration(best.cost) if best else "-",
                ("final" if is_final(best) else "search") if best else "-",
                f"<code>{text(config(best.config), 2000)}</code>" if best else "all failed",
            )
        )
    heads = ("strategy", "trials", "failed", "best kernel", "timed in", "its schedule")
    parts.append(table(heads, lines, numbers=(1, 2, 3)))
    parts.append(every_candidate(chapter))
    return "".join(parts)


def _failures(story: Story) -> str:
    if not story.failures:
        return "<h2>Failures</h2><p>None.</p>"
    rows = [
        (text(kind), f"{number:,}", text(strategy), f"<code>{text(message)}</code>")
        for kind, number, strategy, message in story.failures
    ]
    return f"<h2>Failures</h2>{table(('kind', 'number', 'latest', 'what it said'), rows, numbers=(1,))}"


def _machines(story: Story) -> str:
    rows = [tuple(map(text, row)) for row in machine_facts(story)]
    return f"<h2>Machines and versions</h2>{table(('target', 'features', 'versions', 'records'), rows)}"
