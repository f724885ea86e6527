"""Style sheet, tables and charts of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from html import escape

from hbtvm.logs.record import Record
from hbtvm.report.ranking import Ranking
from hbtvm.report.story import Chapter, Story
from hbtvm.report.svg import Chart, counting, linear, seconds
from hbtvm.words.printable import shown
from hbtvm.words.quantities import config, duration

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b6539b", "#a67c00", "#3d9bd1", "#7a5ad0", "#707070")
"""Okabe and Ito's colours, safe for colour blindness; pale colours are darkened for a white page."""

_SHOWN = 12.0  # the chart omits candidates slower than the chapter's best by more than this factor
MOST = 400  # default maximal length of a log's text on the page, in characters

STYLE = """
:root{color-scheme:light dark;--ink:#1c1f24;--soft:#626b78;--rule:#dfe3e8;--paper:#fff;--warn:#9a5b00}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#9aa3af;--rule:#343a43;--paper:#15181c;--warn:#e0a84a}}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{padding:24px;overflow-wrap:break-word}
h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:36px 0 8px}
p,figcaption{max-width:90ch}p{margin:4px 0 12px}
.facts,footer,figcaption,.y,.x,.name{color:var(--soft)}footer{margin-top:40px}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:4px 14px 4px 0;border-bottom:1px solid var(--rule);vertical-align:top}
th{font-weight:600;color:var(--soft);font-size:13px}td.n,th.n{text-align:right;white-space:nowrap}
code{font:12.5px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
details{margin:10px 0}summary{cursor:pointer;color:var(--soft)}.warn{color:var(--warn)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(480px,100%),1fr));gap:20px}
figure{margin:0 0 12px}figcaption{font-size:13px}svg{width:100%;height:auto;display:block}
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}.y{text-anchor:end}.x,.name{text-anchor:middle}
.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}.line{fill:none;stroke-width:2;stroke-linejoin:round}
circle.faint{opacity:.5}circle{opacity:.75}circle:hover{opacity:1;stroke:var(--ink)}
.legend span{margin-right:18px;white-space:nowrap}.legend i{display:inline-block;width:11px;height:11px;
border-radius:2px;margin-right:6px}.bar{display:inline-flex;width:260px;height:12px;vertical-align:middle}
.bar i{height:100%;min-width:1px}.bar .failed{opacity:.4}.models{margin:0 0 8px;padding-left:22px}
path.slow{fill:none;stroke-width:1.6}
@media(max-width:640px){main{padding:14px}h1{font-size:21px}h2{font-size:17px}
.legend span{display:inline-block}.cards thead{display:none}.cards table,.cards tbody,.cards tr,.cards td{
display:block}.cards tr{padding:8px 0;border-bottom:1px solid var(--rule)}.cards td,.cards td.n{border:0;
overflow-wrap:anywhere;padding:1px 0 1px 112px;display:flow-root;text-align:left;white-space:normal}
.cards td:before{content:attr(data-head);float:left;margin-left:-112px;width:104px;color:var(--soft);
font-size:13px}.cards td:empty{display:none}.bar{width:150px}}
""" + "".join(
    f".line.s{i},.slow.s{i}{{stroke:{c}}}circle.s{i}{{fill:{c}}}.b{i}{{background:{c}}}"
    for i, c in enumerate(_COLOURS)
)


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


def text(value: object, most: int = MOST) -> str:
    """Return a log's text as HTML, with unprintable characters escaped and long text cut."""
    return escape(shown(value, most))


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
