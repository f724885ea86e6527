"""Outcomes as Markdown: a table by class, refusals with their sentences, wrong answers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from benchmarks import common
from benchmarks.sweep.compare import AGREE, BOTH_RAISE, MORE, REFUSED, WRONG
from benchmarks.sweep.run import Outcome, summary

_SHOWN = 160

_FEW = 8  # classes that a row names


def markdown(outcomes: Sequence[Outcome], head: str) -> str:
    """Return all tables; those of wrong answers and of what hbtvm answers beyond the library where any."""
    by_class: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_class[outcome.name].append(outcome)
    parts = [head, "", _by_class(by_class), "", "## Refused", "", _sentences(by_class, REFUSED)]
    for verdict, title in (
        (MORE, "More: answered where scikit-learn raises, or stated in models.md"),
        (WRONG, "Wrong"),
    ):
        if any(outcome.counts[verdict] for outcome in outcomes):
            parts += ["", f"## {title}", "", _sentences(by_class, verdict, where=verdict == WRONG)]
    return "\n".join(parts) + "\n"


def _by_class(by_class: dict[str, list[Outcome]]) -> str:
    """Calls by verdict."""
    header = ("class", "settings", AGREE, "both raise", REFUSED, MORE, WRONG)
    rows = []
    total: Counter[str] = Counter()
    for name, outcomes in sorted(by_class.items()):
        counts = summary(outcomes)
        total.update(counts)
        total["settings"] += len(outcomes)
        rows.append((name, str(len(outcomes)), *_cells(counts)))
    rows.append(("all", str(total["settings"]), *_cells(total)))
    return common.markdown(header, rows)


def _cells(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{counts[one]:,}" for one in (AGREE, BOTH_RAISE, REFUSED, MORE, WRONG))


def _sentences(by_class: dict[str, list[Outcome]], verdict: str, where: bool = False) -> str:
    """Reasons of a verdict with the classes that they occur in, the first place of each with `where`."""
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for name, outcomes in sorted(by_class.items()):
        for outcome in outcomes:
            for kind, method, variant, reason in outcome.findings:
                if kind == verdict:
                    text = _plain(reason, name)
                    place = f"{name} (seed {outcome.seed}; {outcome.setting}; {method}; {variant})"
                    places[text].setdefault(name, place if where else name)
    header = ("reason", "where" if where else "classes")
    rows = [
        (_cell(text), _cell(_some(list(names.values()))))
        for text, names in sorted(places.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return common.markdown(header, rows) if rows else "None."


def _some(names: list[str]) -> str:
    more = f"; {len(names) - _FEW} more" if len(names) > _FEW else ""
    return "; ".join(names[:_FEW]) + more


def _plain(reason: str, name: str) -> str:
    """A sentence with the class's name and numbers left out, so that equal ones are one row."""
    text = re.sub(rf"\b{name}\b", "<class>", reason)
    text = re.sub(r"'[^']*'", "'…'", text)
    return re.sub(r"-?\d[\d.,e+-]*", "#", text)[:_SHOWN]


def _cell(text: str) -> str:
    """Text that does not end a table's cell."""
    return text.replace("|", "\\|")
