"""Times, tables, and what is shown while a search runs."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
from pathlib import Path

import pytest

from hbtvm.cli import show
from hbtvm.cli.progress import live
from hbtvm.cli.progress.trend import Course, bars, times
from hbtvm.words import quantities as wording
from tests import fake_cli
from tests.fake_cli import trial


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (1e-12, "0.00 ns"),
        (2.345e-7, "234 ns"),
        (9.9996e-7, "1.00 µs"),
        (1.2345e-5, "12.3 µs"),
        (0.000999, "999 µs"),
        (0.0012, "1.20 ms"),
        (12.0, "12.0 s"),
    ],
)
def test_durations_have_three_digits(seconds: float | None, text: str) -> None:
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.7, "1 min 00 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")],
)
def test_clock(seconds: float, text: str) -> None:
    assert wording.clock(seconds) == text


def test_a_plain_table_is_aligned_and_has_no_codes(capsys: pytest.CaptureFixture[str]) -> None:
    show.print_table(("name", "time"), [("a", "10 s"), ("long name", "5 s")], numbers=("time",))
    assert capsys.readouterr().out == "name       time\na          10 s\nlong name   5 s\n"


def plain(events: list[live.Trial]) -> list[str]:
    stream = io.StringIO()
    with live.watcher("m.pkl", stream) as watch:
        for event in events:
            watch(event)
    return stream.getvalue().splitlines()


def test_plain_lines_at_tenths_of_the_way() -> None:
    lines = plain([trial(i, total=200, elapsed=i / 100) for i in range(1, 201)])
    assert lines[0] == "tuning m.pkl"
    assert len(lines) == 11
    assert lines[1] == "     0 s: 20/200 trials, 1 row 500 ns, about 2 s left"
    assert lines[-1] == "     2 s: 200/200 trials, 1 row 50.0 ns"


def test_plain_lines_after_ten_seconds_then_more_seldom() -> None:
    lines = plain([trial(i, total=10**9, remaining=1e9, elapsed=float(i)) for i in range(1, 3601)])
    times = [line.split(":")[0].strip() for line in lines[1:]]
    assert times[:3] == ["10 s", "20 s", "30 s"]
    assert 60 < len(times) < 110
    assert lines[1].startswith("    10 s: 10 trials, 1 row 1.00 µs, about ")


def test_plain_lines_tell_failures_and_the_last_state() -> None:
    lines = plain([trial(1, total=1000), trial(2, total=1000, failures={"build": 1, "timeout": 2})])
    assert lines[1:] == ["     2 s: 2/1,000 trials, 3 failed, 1 row 5.00 µs, about 16 min 38 s left"]


def test_the_estimate_does_not_count_what_the_log_had() -> None:
    estimate = live.Estimate()
    for number in (101, 102):
        event = trial(number, total=200, elapsed=float(number - 100))
        estimate.update(event)
    assert estimate.left(event) == pytest.approx(98)
    assert estimate.left(trial(102, total=200, elapsed=2.0, remaining=5.0)) == 5.0
    assert estimate.share(trial(50, total=100, elapsed=90.0, remaining=10.0)) == pytest.approx(0.9)
    assert estimate.share(trial(1, total=0)) == 1.0


def on_terminal(command: list[str], cwd: Path, **env: str) -> tuple[int, str]:
    """Run on a terminal of its own; return the status and all that it wrote."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(cwd)
        os.execve(sys.executable, command, fake_cli.environment(**{"COLUMNS": "100", **env}))
    written = b""
    while True:
        try:
            written += os.read(terminal, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), written.decode()


def test_the_live_display_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "m.txt").touch()
    status, text = on_terminal(fake_cli.command("tune", "m.txt", how="fine"), tmp_path, TERM="xterm")
    assert status == 0
    for part in ("starting, ", "10/10 trials", "1 row", "1.00 µs", "failed: 1 build", "Ctrl-C stops here"):
        assert part in text
    # Each strategy has a line of its own, with its trials and a trend that ends at the top.
    assert re.search(r"1 row .*\d+ trials .*1\.00 µs.*█", text)
    assert "\x1b[" in text and "━" in text
    assert "hbtvm predict m.tar DATA.csv -o OUT.csv\r\n" in text
    # The file is empty. The line is folded after the last word that fits.
    assert " ".join(text.split()).endswith(
        "compare hbtvm check m.tar --model m.txt --data ROWS (not done here: m.txt: expected a LightGBM "
        "model text, but its first line is not 'tree')"
    )


def test_trends_rise_to_the_fastest() -> None:
    assert bars([2e-6], 2e-6, 8) == "█"
    assert bars([4e-6, 2.2e-6, 2e-6], 2e-6, 8) == "▁▇█"
    # Another strategy is faster: this one never gets to the top. Long ones keep both ends.
    assert bars([1.0] + [0.5] * 98 + [0.22], 0.2, 3) == "▁▁▇"
    course = Course()
    for number, (seconds, final) in enumerate([(3.0, False), (None, False), (4.0, False), (1.0, True)]):
        course.update(trial(number + 1, time=seconds, final=final))
    assert (course.trials, course.failed, course.best, course.final) == (3, 1, [3.0, 3.0], 1.0)


def test_the_final_replaces_readings_that_it_contradicts() -> None:
    lucky, slow, untried, winner = (Course(best=[1.0]), Course(best=[9.0]), Course(), Course(best=[2.0]))
    assert times([lucky, slow, untried, winner]) == [1.0, 9.0, None, 2.0]
    winner.update(trial(9, time=3.0, final=True))
    assert times([lucky, slow, untried, winner]) == [None, 9.0, None, 3.0]


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path) -> None:
    (tmp_path / "m.txt").touch()
    status, text = on_terminal(fake_cli.command("tune", "m.txt", how="fine"), tmp_path, TERM="dumb")
    assert status == 0
    assert "\x1b" not in text and "10/10 trials" in text
