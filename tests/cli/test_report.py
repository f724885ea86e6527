"""``hbtvm report``: a log as one page, which needs nothing else and tells what the log says."""

from __future__ import annotations

import pickle
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
from hbtvm.cli.main import main
from hbtvm.comparison import compare
from hbtvm.cost_model import RankModel
from hbtvm.cost_model.models.gaussian_process import FeatureSpace
from hbtvm.logs import Log, Record
from hbtvm.report.gains import gains
from hbtvm.report.page import render
from hbtvm.report.ranking import validate
from hbtvm.report.story import tell
from hbtvm.report.svg import counting, linear, seconds
from hbtvm.schedules.space import Space
from tests import models
from tests.browser import look, needs_browser
from tests.fake_tuning import loops, task

SHAPE = {"features": 28, "groups": 1, "trees": 500, "leaves": 31, "depth": 9, "dtype": "float32"}
CPU = {"kind": "llvm", "mcpu": "znver5", "features": ["avx2"]}
EVIL = '<script src="http://evil/x.js">'


def record(seconds: float | None, strategy: str = "gemm", rows: int = 100, **more: Any) -> Record:
    given: dict[str, Any] = {
        "workload": {**SHAPE, "rows": rows, "threads": 2},
        "strategy": strategy,
        "target": CPU,
        "config": {"tile": 8},
        "times": () if seconds is None else (seconds,),
        "error": {"kind": "build", "message": EVIL} if seconds is None else None,
        "tvm": "0.27.0",
        "hbtvm": "0.1.0",
        "date": "2025-01-31T12:00:00Z",
    }
    return Record(**{**given, **more})


RECORDS = [
    record(4e-5, config={"tile": 1}),
    record(None, config={"tile": 2}),
    record(2e-5, config={"tile": 4}),
    record(3e-5, config={"tile": 8}),
    record(1e-5, "bitvector", config={"lanes": 16}),
    record(2.5e-5, "bitvector", config={"lanes": 8}),
    record(1.2e-5, "bitvector", config={"lanes": 16}, extra={"final": True}),
    record(1e-6, rows=1),
]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for one in RECORDS:
        Log("team.jsonl").append(one)
    return Path("team.jsonl")


class Checker(HTMLParser):
    """Collects tags; fails where one is closed that is not open."""

    EMPTY = ("meta", "line", "circle", "path", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(log)]) == 0
    assert capsys.readouterr().out.startswith("team.html: 8 records of 2 workloads (")
    page = Path("team.html").read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert not {"script", "link", "img", "iframe"} & set(checker.seen)
    assert not {"src", "href", "onload"} & set(checker.attributes)
    assert "url(" not in page and "@import" not in page
    assert "&lt;script src=" in page  # what a log holds is shown, never obeyed
    for told in ("500 trees of 31 leaves", "12.0 µs", "bitvector", "znver5", "TVM 0.27.0", "build", "lanes"):
        assert told in page, told


def test_models_are_named_and_defaults_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained = models.ZOO["lgb_two"]()
    Path("churn.pkl").write_bytes(pickle.dumps(trained))
    options = ["--batch-size", "1", "--trials", "4", "--threads", "1", "--log", "log.jsonl"]
    assert main(["tune", "churn.pkl", *options]) == 0
    records = Log("log.jsonl").read().records
    assert {record.extra["model"] for record in records} == {"churn.pkl"}
    assert main(["report", "log.jsonl"]) == 0
    page = Path("log.html").read_text()
    first = page.index("Default against tuned")
    assert first < page.index("Trials by workload")
    assert "churn.pkl: 1 row in a call" in page
    row = page[first : page.index("</tbody>", first)]
    assert "churn.pkl" in row and "not measured" not in row and "×</b>" in row


def test_gains_compare_times_of_the_same_part_of_the_search() -> None:
    final = {"final": {"id": "f", "reading": 1e-5}}
    records = [
        record(2e-5, config={"tile": 1}),
        record(1e-5, "bitvector", config={"lanes": 16}),
        record(3e-5, "bitvector", config={"lanes": 16}, extra=final),
    ]
    story = tell(records, default=lambda measured: records[0])
    assert "<b>2.00×</b>" in gains(story)  # both are readings of the search
    measured = record(4.5e-5, config={"tile": 1}, extra={"final": {"id": "f", "reading": 2e-5}})
    assert "<b>1.50×</b>" in gains(tell([*records, measured], default=lambda _: measured))
    assert "not measured" in gains(tell(records))
    assert gains(tell([record(None)])) == ""


@needs_browser
def test_the_page_fits_screens(tmp_path: Path) -> None:
    named = [record(one.cost, rows=10_000, extra={"model": "churn_" * 12 + ".pkl"}) for one in RECORDS[2:4]]
    story = tell([*RECORDS, *named])
    (tmp_path / "report.html").write_text(
        render(story, "Tuning log " + "long_name_" * 9, {}), encoding="utf-8"
    )
    looks, console = look(tmp_path, ["report.html"], (400, 1280))
    assert console == []
    for shown in looks:
        assert shown.wide <= shown.width and shown.pictures > 1 and shown.hidden == 0
        assert "churn_" in shown.text


def test_another_name_and_names_that_are_refused(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(log), "-o", "r.html"]) == 0
    assert Path("r.html").exists()
    for given, sentence in (
        ("report team.jsonl -o team.jsonl", "team.jsonl: the name of a page must end in .html"),
        ("report team.jsonl --package m.tar", "--package and --model go together"),
        ("report none.jsonl", "none.jsonl: there is no such file"),
        ("report team.jsonl --package m.tar --model m.pkl", "m.tar: there is no such file"),
    ):
        assert main(given.split()) == 2
        assert sentence in capsys.readouterr().err
    Path("empty.jsonl").touch()
    assert main(["report", "empty.jsonl"]) == 2
    assert "no tuning record" in capsys.readouterr().err


def test_what_a_log_tells() -> None:
    story = tell(RECORDS, skipped=3)
    one, hundred = story.chapters
    assert (one.rows, hundred.rows) == (1, 100)
    assert len(hundred.trials) == 6  # the final's new measurement is no trial
    assert hundred.curve("gemm") == [(1, 4e-5), (3, 2e-5), (6, 2e-5)]
    assert hundred.curve("bitvector") == [(5, 1e-5), (6, 1e-5)]
    assert (hundred.counts("gemm"), hundred.counts("bitvector")) == ((4, 1), (2, 0))
    winner = hundred.winner()
    assert winner is not None and winner.cost == 1.2e-5  # the final's word counts
    assert hundred.strategies == ["bitvector", "gemm"]
    assert story.failures == [("build", 1, "gemm", EVIL)]


def ranked(frame: FeatureSpace) -> RankModel:
    """A model that has no use for units."""
    return RankModel()


def test_workloads_of_which_nothing_is_known() -> None:
    strange = [
        Record(
            workload={}, strategy="x", target={"kind": "?"}, config={}, error={"kind": "k", "message": ""}
        ),
        Record(workload={"size": "many"}, strategy="y", target={}, config={"a": True}, times=(1.0,)),
    ]
    story = tell(strange)
    page = render(story, "strange", validate(story.chapters, lambda record: None, ranked))
    assert "all failed" in page and "rows=" not in page


def test_predictions_come_from_models_that_had_not_seen_the_answer() -> None:
    from tests.fake_programs import cost

    rng = np.random.default_rng(0)
    own = task()
    configs = own.space.sample(rng, 80)
    shared: dict[str, Any] = {"strategy": own.strategy, "target": own.target}
    real = [Record(workload=own.workload, config=c, times=(cost(c),), **shared) for c in configs]
    noise = [
        Record(workload={"rows": 1}, config=c, times=(float(t),), **shared)
        for c, t in zip(configs, rng.permutation([cost(c) for c in configs]), strict=True)
    ]

    def describe(record: Record) -> tuple[Any, Space]:
        return loops, own.space

    [of_real], [of_noise] = tell(real).chapters, tell(noise).chapters
    found = validate([of_real], describe, ranked)
    assert found[0].accuracy > 0.75
    assert len(found[0].points) == 80
    assert found == validate([of_real], describe, ranked)
    assert 0.3 < validate([of_noise], describe, ranked)[0].accuracy < 0.7  # nothing to foresee
    assert validate([of_real], lambda record: None, ranked) == {}


def test_a_package_against_its_library(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "SECONDS", 0.01)
    trained = models.ZOO["sk_forest_real_nan"]()
    Path("m.pkl").write_bytes(pickle.dumps(trained))
    np.save("rows.npy", models.data()[0])
    hbtvm.compile(trained, batch_sizes=(1, 10), threads=1).save("m.tar")
    given = ["report", "team.jsonl", "--package", "m.tar", "--model", "m.pkl", "--data", "rows.npy"]
    assert main(given) == 2
    assert "--trust" in capsys.readouterr().err
    assert main([*given, "--trust"]) == 0
    out = capsys.readouterr().out.splitlines()
    for line, rows in zip(out[1:4], ("1 row", "100 rows", "240 rows"), strict=True):
        assert line.startswith(f"{rows} in a call: ") and line.endswith("× as fast as the library")
    assert out[4] == "the package agrees with the library in all 240 rows: predict"
    page = Path("team.html").read_text()
    assert "Against the library" in page and out[4] in page
    checker = Checker()
    checker.feed(page)
    assert checker.open == []


def test_every_candidate_is_shown_and_busy_ones_are_told() -> None:
    marked = [
        record(2e-5, config={"tile": 16}, extra={"waited": 0.61}),
        record(9e-3, config={"tile": 32}, extra={"drift": 1.5}),
        record(1e-5, config={"tile": 64}, extra={"waited": 0.1}),
    ]
    story = tell([*RECORDS, *marked])
    page = render(story, "log", {})
    rows = page.split("<details>")[-1]
    assert "All 9 candidates, and 1 repeated measurement of the fastest" in rows
    for tile in (1, 2, 4, 8, 16, 32, 64):
        assert f"<code>tile={tile}</code>" in rows
    assert "busy: waited 61% of its time" in rows and "busy: reference 1.50 times as slow" in rows
    assert "<b>3</b> measured on a busy machine" in page
    # The slowest would squeeze the chart and the failed has no time, yet both are in it.
    assert page.count('<path class="slow') == 2
    assert "measured on a busy machine" not in render(tell(RECORDS), "log", {})


@pytest.mark.parametrize(
    "given", ["report {}", "log best {}", "log stats {}", "log prune {}", "log merge {} -o o"]
)
def test_what_is_no_log_is_refused_at_once(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.pkl").write_bytes(pickle.dumps([1] * 10_000))
    Path("m.npy").write_bytes(b"{}\n" + bytes(100))
    monkeypatch.setattr(Log, "read", lambda self: pytest.fail("it was read"))
    for name, what in (("m.pkl", "a pickle"), ("m.npy", "a binary file")):
        assert main(given.format(name).split()) == 2
        assert capsys.readouterr().err == (
            f"hbtvm: error: {name}: this is {what}, expected a tuning log (lines of JSON)\n"
        )


def test_axes_hold_what_they_show() -> None:
    for values in ([1e-6, 1e-6], [1e-6, 1.1e-6], [3e-7, 5e-3], [0.5, 2.0]):
        axis = seconds(values)
        assert all(0 <= axis.place(v) <= 1 for v in values)
        assert axis.ticks and all(0 <= axis.place(v) <= 1 for v, _ in axis.ticks)
    assert [label for _, label in counting(12_000).ticks][:2] == ["0", "5,000"]
    assert len(counting(1).ticks) == 2
    assert linear([2.0, 2.0]).place(2.0) == 0.5
