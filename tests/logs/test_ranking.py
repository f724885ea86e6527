"""Which candidate wins, by readings and finals, and that everything that shows a winner agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hbtvm.logs import Log, Record, RecordError, best, merge, prune, ranking
from hbtvm.logs.ranking import final_mark
from hbtvm.report.story import tell

FAILED = {"kind": "crash", "message": "gone"}


def record(name: str, seconds: float | None, final: Any = None, **more: Any) -> Record:
    """A candidate of strategy ``s``, or of that before a colon; with the mark of a final if one is given."""
    strategy, _, knob = name.rpartition(":")
    given: dict[str, Any] = {
        "workload": {"trees": 5, "rows": 1},
        "strategy": strategy or "s",
        "target": {"kind": "llvm"},
        "config": {"knob": knob},
        "times": () if seconds is None else (seconds,),
        "error": FAILED if seconds is None else None,
        "extra": {} if final is None else {"final": final},
        "date": "2025-01-31T12:00:00Z",
    }
    return Record(**{**given, **more})


def final(ident: str, reading: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = final_mark(ident, reading)["final"]
    return found


def names(records: list[Record]) -> list[str]:
    return [f"{one.config['knob']} {one.cost:g}" for one in ranking(records)]


def test_without_a_final_the_fastest_reading_wins() -> None:
    assert names([record("a", 3), record("b", 1), record("c", 2), record("d", None)]) == ["b 1", "c 2", "a 3"]
    assert names([record("a", 1), record("b", 2), record("a", 3)]) == ["b 2", "a 3"]  # the latest reading
    assert names([]) == []
    assert names([record("a", 1, config={})]) == []


READINGS = [record("a", 5.0), record("b", 5.5), record("lucky", 5.2), record("slow", 9.0)]


@pytest.mark.parametrize("old", [False, True])
def test_a_final_decides_among_its_finalists_and_beats_every_lucky_reading(old: bool) -> None:
    marks = (True, True) if old else (final("1", 5.0), final("1", 5.5))
    finals = [record("a", 8.3, marks[0]), record("b", 8.1, marks[1])]
    assert names([*READINGS, *finals]) == ["b 8.1", "a 8.3", "lucky 5.2", "slow 9"]


def test_what_fails_in_its_final_is_out() -> None:
    finals = [record("a", None, final("1", 5.0)), record("b", 8.1, final("1", 5.5))]
    assert names([*READINGS, *finals]) == ["b 8.1", "lucky 5.2", "slow 9"]
    assert names([*READINGS, record("a", None, final("1"))]) == ["lucky 5.2", "b 5.5", "slow 9"]


def test_a_failure_elsewhere_takes_nothing_away() -> None:
    assert names([record("a", 1), record("b", 2), record("a", None)]) == ["a 1", "b 2"]


def test_a_final_replaces_an_earlier_one_whose_winner_took_part() -> None:
    first = [record("a", 8.1, final("1", 5.0)), record("b", 8.2, final("1", 5.5))]
    # Measured on a busier day: b's old time must not win for that.
    second = [record("c", 8.6, final("2", 4.0)), record("a", 9.0, final("2", 5.0))]
    known = [*READINGS, *first, record("c", 4.0), *second]
    assert names(known)[:2] == ["c 8.6", "a 9"]
    # The same in a log of the time before finals had names.
    plain = [
        record(one.config["knob"], one.cost, True) if one.extra else one
        for one in known  # type: ignore[arg-type]
    ]
    assert names(plain)[:2] == ["c 8.6", "a 9"]


def test_finals_of_logs_that_were_merged_count_side_by_side() -> None:
    ours = [record("a", 8.1, final("1", 5.0)), record("b", 8.3, final("1", 5.5))]
    theirs = [record("c", 7.9, final("2", 7.0)), record("d", 8.2, final("2", 7.1))]
    for known in ([*ours, *theirs], [*theirs, *ours], [ours[0], theirs[0], ours[1], theirs[1]]):
        assert names(known) == ["c 7.9", "a 8.1", "d 8.2", "b 8.3"]


def test_a_search_that_was_stopped_before_its_final_counts_by_readings() -> None:
    finals = [record("a", 8.3, final("1", 5.0)), record("b", 8.1, final("1", 5.5))]
    known = [*READINGS, *finals]
    assert names([*known, record("new", 3.0)])[:2] == ["new 3", "b 8.1"]
    assert names([*known, record("new", 5.1)])[0] == "b 8.1"  # a's reading was as lucky
    assert names([*known, record("lucky", 1.0)])[0] == "b 8.1"  # it had its chance
    unknown = [record("a", 8.3, final("1")), record("b", 8.1, final("1"))]
    assert names([*unknown, record("new", 3.0)])[0] == "b 8.1"


def test_finals_without_an_id_are_those_of_an_older_log() -> None:
    known = [record("a", 5), record("b", 4), record("c", 5.5), record("a", 6, True), record("c", 7, True)]
    assert names(known) == ["a 6", "c 7", "b 4"]
    named = [record("a", 8, final("1", 5.0)), record("b", 9, final("1", 4.0))]
    assert names([*known[:3], *named, *known[3:]])[:2] == ["a 6", "c 7"]


@pytest.mark.parametrize(
    "mark", [1, -1, "x", ["a"], {"id": 3}, {"id": "1", "reading": "fast"}, {"id": "1", "reading": -1}, {}]
)
def test_marks_that_make_no_sense_are_refused(mark: Any) -> None:
    with pytest.raises(RecordError, match="final"):
        record("a", 6, mark)


def test_best_is_by_the_rule_within_a_workload_and_a_strategy() -> None:
    known = [
        record("x:a", 5.0),
        record("y:b", 5.5),
        record("y:lucky", 4.0),
        record("x:a", 8.0, final("1", 5.0)),
        record("y:b", 8.5, final("1", 5.5)),
        record("z:c", 6.0),
        record("x:a", 7.0, workload={"trees": 5, "rows": 2}),
    ]
    one = {"trees": 5, "rows": 1}
    assert [(best(known, one, strategy=name) or known[0]).cost for name in (None, *"xyz")] == [8, 8, 8.5, 6]
    assert (best(known) or known[0]).cost == 7  # of another workload


def test_the_report_goes_by_the_rule() -> None:
    known = [
        record("x:a", 5.0),
        record("y:b", 5.5),
        record("z:lucky", 4.0),
        record("x:a", 8.3, final("1", 5.0)),
        record("y:b", 8.1, final("1", 5.5)),
        record("w:bad", None),
    ]
    [chapter] = tell(known).chapters
    assert chapter.winner() is known[4]
    assert chapter.strategies == ["y", "x", "z", "w"]
    assert chapter.winner("x") is known[3] and chapter.winner("w") is None
    assert [one.cost for one in chapter.trials] == [5.0, 5.5, 4.0, float("inf")]


def test_a_pruned_log_has_the_same_winners(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    finals = [
        record("x:30", 8.3, final("1", 5.0)),
        record("y:2", 8.1, final("1", 5.5)),
        record("x:0", None, final("1", 0.1)),
    ]
    readings = [record(f"{name}:{i}", 0.1 + i) for i in range(40) for name in "xyz"]
    for one in [*readings, *finals]:
        log.append(one)
    before = [best(log.read().records, strategy=name) for name in (None, *"xyz")]
    prune(log.path, keep=1, others=0, errors=0)
    after = log.read().records
    assert [best(after, strategy=name) for name in (None, *"xyz")] == before
    assert [one for one in after if one.extra] == finals
    assert len(after) == 3 + 3
    assert prune(log.path, keep=0, others=0, errors=0).kept == 0


def test_a_merged_log_keeps_finals_apart(tmp_path: Path) -> None:
    for name, seconds in (("a", 8.0), ("b", 7.0)):
        log = Log(tmp_path / name)
        log.append(record(name, 5.0))
        log.append(record(name, seconds, final(name, 5.0)))
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both")
    assert names(Log(tmp_path / "both").read().records) == ["b 7", "a 8"]


def test_a_final_of_which_one_record_is_left_compares_nothing() -> None:
    """Versions that knew no finals pruned the slower records of one, and so at times the winner's."""
    found = names([record("a", 3.9), record("b", 4.4), record("b", 4.3, final=True)])
    assert found == ["a 3.9", "b 4.3"]
