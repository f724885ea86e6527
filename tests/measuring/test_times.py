"""Files of times: they survive what may happen to them, and say what they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hbtvm import trials as api
from hbtvm.errors import FileError, InputError
from hbtvm.logs.ranking import is_final
from hbtvm.logs.store import Log
from hbtvm.measuring import archive, times
from hbtvm.measuring.archive import Trials
from hbtvm.measuring.times import Line, TimesFile
from tests.measuring.exported import archive_in

DATE = "2026-01-02T03:04:05Z"


@pytest.fixture
def trials(tmp_path: Path) -> Trials:
    """Return an archive."""
    return archive.read(archive_in(tmp_path))


def opened(path: Path, trials: Trials, **changed: Any) -> TimesFile:
    """Open a file of times of this archive's own target."""
    given = {"target": trials.target, "device": "a CPU", "hbtvm": "0.1.0", "date": DATE, **changed}
    return TimesFile(path, trials, **given)


def test_lines_are_carried_on(tmp_path: Path, trials: Trials) -> None:
    path = tmp_path / "times.jsonl"
    lines = [
        Line(0, DATE, (1e-6, 2e-6), measure_seconds=0.5),
        Line(1, DATE, error={"kind": "crash", "message": "it died"}),
        Line(0, DATE, (1.5e-6,), final=times.final("id", 1e-6)),
    ]
    with opened(path, trials) as file:
        for line in lines[:2]:
            file.add(line)
    with opened(path, trials, date="2027-01-01T00:00:00Z") as file:
        assert file.known.lines == lines[:2]
        file.add(lines[2])
    found = times.read(path, trials)
    assert found.lines == lines and found.head["date"] == DATE and not found.skipped
    first, second, last = found.records(trials)
    assert first.times == (1e-6, 2e-6) and first.config == trials.candidates[0].config
    assert first.workload == trials.tasks[trials.candidates[0].task].workload
    assert second.error == {"kind": "crash", "message": "it died"} and is_final(last)


@pytest.mark.parametrize("torn", [b'{"candidate": 1, "ti', b"\xff\xfe", b'{"candidate": 1}', b"[1]"])
def test_a_torn_line_costs_itself_only(tmp_path: Path, trials: Trials, torn: bytes) -> None:
    path = tmp_path / "times.jsonl"
    with opened(path, trials) as file:
        file.add(Line(0, DATE, (1e-6,)))
    with open(path, "ab") as file:
        file.write(torn)
    with opened(path, trials) as file:
        assert [line.candidate for line in file.known.lines] == [0] and file.known.skipped == 1
        file.add(Line(2, DATE, (2e-6,)))
    assert [line.candidate for line in times.read(path, trials).lines] == [0, 2]


def test_a_first_line_that_was_torn_is_written_anew(tmp_path: Path, trials: Trials) -> None:
    path = tmp_path / "times.jsonl"
    for part in (b"", b'{"da', b'{"date": "2026-01-02T03'):
        path.write_bytes(part)
        with opened(path, trials) as file:
            assert not file.known.lines
        assert not times.read(path, trials).skipped


@pytest.mark.parametrize(
    "line",
    [
        {"candidate": 10**6, "date": DATE, "times": [1.0]},
        {"candidate": -1, "date": DATE, "times": [1.0]},
        {"candidate": True, "date": DATE, "times": [1.0]},
        {"candidate": 0, "date": DATE, "times": [0]},
        {"candidate": 0, "date": DATE, "times": [], "error": None},
        {"candidate": 0, "date": "yesterday", "times": [1.0]},
        {"candidate": 0, "date": DATE, "times": [1.0], "error": {"kind": "crash", "message": "x"}},
        {"candidate": 0, "date": DATE, "times": [1.0], "final": 3},
        {"candidate": 0, "date": DATE, "times": [1.0], "more": 3},
        {"candidate": 10**400, "date": DATE, "times": [1.0]},
        {"candidate": 0, "date": DATE, "times": [10**400]},
        {"candidate": 0, "date": DATE, "times": [float("nan")]},
        {"candidate": 0, "date": DATE, "times": 5},
        {"candidate": 0, "date": DATE, "times": [1.0], "measure_seconds": 10**400},
        {"candidate": 0, "date": DATE, "times": [1.0], "health": {"clock": float("inf")}},
        {"candidate": 0, "date": DATE, "times": [1.0], "final": {"id": "a", "reading": -1}},
        {"candidate": 0, "date": DATE, "times": [1.0], "final": "many"},
        {"candidate": 0, "date": DATE, "times": "many"},
        {"candidate": 0, "date": DATE, "times": {"a": 1}},
        5,
    ],
)
def test_lines_that_make_no_sense_are_left_out(tmp_path: Path, trials: Trials, line: Any) -> None:
    path = tmp_path / "times.jsonl"
    opened(path, trials).__exit__(None, None, None)
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")
    found = times.read(path, trials)
    assert not found.lines and found.skipped == 1
    assert found.note.startswith(f"{path}: line 2 was skipped (")


def test_other_files_are_refused_and_left_alone(tmp_path: Path, trials: Trials) -> None:
    path = tmp_path / "times.jsonl"
    head = {"format": "hbtvm-times", "version": 1, "trials": trials.digest, "target": trials.target}
    for content, words in (
        (b"a,b\n1,2\n", "not a file of times"),
        (b"a diary", "not a file of times"),
        (json.dumps({**head, "version": 2}).encode() + b"\n", "format version 2, but this hbtvm reads"),
        (json.dumps({**head, "trials": "ab"}).encode() + b"\n", "of another archive"),
        (json.dumps({**head, "target": 5}).encode() + b"\n", "not a file of times"),
        (
            json.dumps({**head, "target": {"kind": "cuda"}, "device": "a GPU"}).encode() + b"\n",
            r"of another machine \(a GPU\)",
        ),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=words):
            opened(path, trials)
        assert path.read_bytes() == content


def test_two_runs_do_not_share_a_file(tmp_path: Path, trials: Trials) -> None:
    path = tmp_path / "times.jsonl"
    with opened(path, trials), pytest.raises(InputError, match="being written by another hbtvm measure"):
        opened(path, trials)
    opened(path, trials).__exit__(None, None, None)


def test_what_can_t_be_written_is_one_sentence(tmp_path: Path, trials: Trials) -> None:
    with pytest.raises(FileError, match="can't write /dev/full: No space left on device"):
        opened(Path("/dev/full"), trials)
    with pytest.raises(FileError, match="No such file or directory"):
        opened(tmp_path / "none" / "times.jsonl", trials)


def test_records_are_added_once(tmp_path: Path, trials: Trials) -> None:
    path, log = tmp_path / "times.jsonl", tmp_path / "log.jsonl"
    with opened(path, trials) as file:
        file.add(Line(0, DATE, (1e-6,)))
        file.add(Line(1, DATE, error={"kind": "crash", "message": "it died"}))
    done = api.add_times(tmp_path / "trials.tar", path, log=log)
    assert (done.records, done.failed, done.known) == (2, 1, 0)
    with opened(path, trials) as file:
        file.add(Line(2, DATE, (2e-6,)))
    done = api.add_times(tmp_path / "trials.tar", path, log=log)
    assert (done.records, done.failed, done.known) == (1, 0, 2)
    assert len(Log(log).read().records) == 3
