"""The command as a whole: what it promises to keep, statuses, one sentence for each error."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hbtvm.cli import arguments
from hbtvm.cli.main import main, make_parser
from hbtvm.cli.parser import Parser
from tests import fake_cli

WHAT = {"-o", "--out", "--target", "--device", "--batch-size", "--dtype", "--strategy"}
BUILD = WHAT | {"--threads", "--max-size", "--log"}
SEARCH = {"--trials", "--time-budget", "--no-transfer", "--seed", "--rpc-tracker", "--rpc-key"}
INTERFACE = {
    "tune": (["model"], BUILD | SEARCH),
    "compile": (["model"], BUILD),
    "predict": (
        ["package", "data"],
        {"-o", "--out", "--output", "--threads", "--header", "--drop", "--device"},
    ),
    "check": (["package"], {"--model", "--data", "--rows", "--trust", "--threads", "--json"}),
    "inspect": (["path"], {"--json", "--max-size"}),
    "report": (["log"], {"-o", "--out", "--package", "--model", "--trust"}),
    "log best": (["log"], {"--target", "--strategy", "--rows", "--json"}),
    "log stats": (["log"], {"--json"}),
    "log merge": (["logs"], {"-o", "--out"}),
    "log prune": (["log"], {"--keep", "--others", "--errors"}),
}
"""What scripts rely on: commands and options may be added, but none of these may go."""

CHOICES = {
    ("tune", "--dtype"): {"float32", "float64"},
    ("compile", "--dtype"): {"float32", "float64"},
    ("predict", "--output"): {"label", "proba", "raw", "decision", "score"},
    ("predict", "--header"): {"auto", "yes", "no"},
}
DEFAULTS = {
    "tune": {
        "target": "cpu",
        "batch_size": None,
        "seed": 0,
        "dtype": "float32",
        "log": "hbtvm-tuning.jsonl",
    },
    "compile": {"target": "cpu", "batch_size": None, "dtype": "float32"},
    "predict": {"header": "auto", "output": None},
    "log prune": {"keep": 32, "others": 128, "errors": 32},
}


def parsers(parser: Parser, name: str = "") -> dict[str, Parser]:
    """Every parser by its command, ``""`` for the program's."""
    found = {name: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command, inner in action.choices.items():
                found.update(parsers(inner, f"{name} {command}".strip()))
    return found


PARSERS = parsers(make_parser())


def test_the_interface_only_grows() -> None:
    assert "--version" in PARSERS[""]._option_string_actions
    for command, (positionals, options) in INTERFACE.items():
        parser = PARSERS[command]
        assert options <= set(parser._option_string_actions), command
        assert [a.dest for a in parser._actions if not a.option_strings] == positionals, command
    for (command, option), choices in CHOICES.items():
        assert choices <= set(PARSERS[command]._option_string_actions[option].choices or ())
    for command, defaults in DEFAULTS.items():
        assert {name: PARSERS[command].get_default(name) for name in defaults} == defaults


@pytest.mark.parametrize("command", ["", *INTERFACE, "log"])
def test_help_teaches_by_examples_that_are_right(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    everything = "--help-all" in PARSERS[command]._option_string_actions
    assert main([*command.split(), "--help-all" if everything else "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: hbtvm {command}".rstrip())
    # A backslash goes on in the next line, in a shell, too.
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.startswith("  hbtvm ")]
    assert lines
    for line in lines:
        given = shlex.split(line)[1:]
        if "--help" not in given:
            make_parser().parse_args(given)


def test_the_strategies_are_those_that_exist() -> None:
    from hbtvm.strategies import STRATEGIES

    assert tuple(STRATEGIES) == arguments.STRATEGIES


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("train x", "hbtvm has no command 'train'; there are tune, compile, predict,"),
        ("predit m d", "hbtvm has no command 'predit'; did you mean predict?"),
        ("--versoin", "hbtvm has no option --versoin; did you mean --version?"),
        ("log bets x", "hbtvm log has no action 'bets'; did you mean best?"),
        ("help tunee", "hbtvm has no command 'tunee'; did you mean tune?"),
        (
            "completion zhs",
            "argument SHELL: invalid choice: 'zhs' (choose from bash, zsh, fish); did you mean",
        ),
        ("tune", "the following arguments are required: MODEL"),
        ("tune m --trials 0", "argument --trials: expected a whole number of at least 1, not '0'"),
        ("tune m --trials many", "argument --trials: expected a whole number of at least 1, not 'many'"),
        ("tune m --max-size 8X", "argument --max-size: expected a size such as 500M or 8G, not '8X'"),
        ("inspect m --max-size 0", "argument --max-size: expected a size such as 500M or 8G, not '0'"),
        ("tune m --threads -1", "argument --threads: expected a whole number of at least 1, not '-1'"),
        ("tune m --epsilon 2", "argument --epsilon: expected a number from 0 to 1, such as 0.05, not '2'"),
        ("tune m --seed 1.5", "argument --seed: expected a whole number of at least 0, not '1.5'"),
        (
            "tune m --time-budget 0",
            "argument --time-budget: expected a time above 0, such as 600 (seconds), 30s, 5m or 2h, not '0'",
        ),
        ("tune m --time-budget nan", "argument --time-budget: expected a time above 0"),
        ("tune m --time-budget 5x", "argument --time-budget: expected a time above 0"),
        ("tune m --time-budget 1m30", "argument --time-budget: expected a time above 0"),
        ("tune m --time-budget 0s", "argument --time-budget: expected a time above 0"),
        ("tune m --time-budget inf", "argument --time-budget: expected a time above 0"),
        (
            "tune m --batch-size 1,0",
            "argument --batch-size: expected numbers of rows of at least 1 with commas",
        ),
        (
            "tune m --batch-size 1,,2",
            "argument --batch-size: expected numbers of rows of at least 1 with commas",
        ),
        ("tune m --strategy gem", "argument --strategy: there is no strategy 'gem'; there are bitvector,"),
        ("compile m --dtype half", "argument --dtype: invalid choice: 'half'"),
        (
            "tune m --dtype float23",
            "argument --dtype: invalid choice: 'float23' (choose from float32, float64); ",
        ),
        ("compile m --qqq 4", "hbtvm compile has no option --qqq"),
        ("tune m --tri 4", "hbtvm tune has no option --tri; did you mean --trials?"),
        ("tune --tirals=4", "hbtvm tune has no option --tirals; did you mean --trials?"),
        ("log best --target cpu --rwos 1 x", "hbtvm log best has no option --rwos; did you mean --rows?"),
        ("tune m -x", "hbtvm tune has no option -x"),
        ("tune m n", "hbtvm tune takes no further argument, and got 'n'"),
        ("predict m", "the following arguments are required: DATA"),
        ("log", "the following arguments are required: ACTION"),
        ("log prune m --keep -1", "argument --keep: expected a whole number of at least 0, not '-1'"),
        ("log merge a", "the following arguments are required: -o/--out"),
    ],
)
def test_wrong_arguments(given: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith(f"hbtvm: error: {sentence}")
    of = " ".join(word for word in given.split()[:2] if word in (*INTERFACE, "completion", "log", "best"))
    of = "" if "has no command" in sentence or given.startswith("--") else of
    assert second.startswith(f"Try 'hbtvm {of}".rstrip()) and second.endswith(" --help'.")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1e3", 1000), ("30s", 30), ("5m", 300), ("2h", 7200), ("1h30m", 5400), ("0.5m", 30)],
)
def test_durations(text: str, seconds: float) -> None:
    assert make_parser().parse_args(["tune", "m", "--time-budget", text]).time_budget == seconds


def test_bare_commands_show_help(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*given: str) -> str:
        assert main(given) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    assert shown() == shown("help") == shown("--help")
    assert shown("help", "tune") == shown("tune", "--help")
    assert shown("help", "log", "best") == shown("log", "best", "-h")


def test_help_of_tune_is_what_most_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--help"]) == 0
    short = capsys.readouterr().out
    assert main(["tune", "--help-all"]) == 0
    full = capsys.readouterr().out
    options = {name for name in PARSERS["tune"]._option_string_actions if name.startswith("--")}
    words = re.split(r"[^\w-]+", short)
    rare = {name for name in options if name not in words}
    assert options - rare == {"--help", "--help-all", *(WHAT - {"-o", "--strategy"}), "--threads"} | {
        "--explain",
        "--log",
        "--trials",
        "--time-budget",
    }
    assert {name for name in options if name not in re.split(r"[^\w-]+", full)} == set()
    assert full.count("\n") > 2 * short.count("\n")


@pytest.mark.parametrize("command", PARSERS)
def test_help_fits(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = parsers(make_parser())[command].format_help(everything=True).splitlines()
    assert [line for line in lines if len(line) > 88] == []


def test_batch_sizes_are_sorted_and_each_taken_once() -> None:
    parsed = make_parser().parse_args(["tune", "m", "--batch-size", "100, 1,100", "--strategy", "gemm,gemm"])
    assert (parsed.batch_size, parsed.strategy) == ((1, 100), ("gemm",))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import hbtvm

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hbtvm {hbtvm.__version__}\n"


def test_help_needs_nothing_heavy(tmp_path: Path) -> None:
    heavy = ["tvm", "tvm_ffi", "sklearn", "xgboost", "lightgbm", "numpy", "pyarrow", "pandas", "rich"]
    code = (
        f"import sys; sys.path.insert(0, {str(fake_cli.ROOT)!r}); from hbtvm.cli.main import main; "
        f"status = main(['--help']); print([m for m in {heavy} if m in sys.modules]); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (0, "[]", "")


@pytest.mark.parametrize(
    ("how", "status", "sentence"),
    [
        ("fails", 1, "hbtvm: error: no candidate worked, g++ is missing"),
        ("log", 1, "hbtvm: error: cannot write tuning log x.jsonl: No space left on device"),
        ("memory", 1, "hbtvm: error: there is not enough memory"),
        (
            "bug",
            1,
            "hbtvm: error: this is a bug in hbtvm, ZeroDivisionError: division (HBTVM_DEBUG=1 shows where)",
        ),
    ],
)
def test_failures_are_one_sentence(how: str, status: int, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "m.txt").touch()
    done = fake_cli.run("tune", "m.txt", how=how, cwd=tmp_path)
    assert done.returncode == status
    assert done.stderr.splitlines() == ["tuning m.txt", sentence]
    assert done.stdout == ""
    assert os.listdir(tmp_path) == ["m.txt"]


def test_a_wrong_model_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text("no model")
    done = fake_cli.run("inspect", "m.txt", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("hbtvm: error: m.txt") and done.stderr.count("\n") == 1


def test_debugging_shows_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "m.txt").touch()
    done = fake_cli.run("tune", "m.txt", how="bug", cwd=tmp_path, env={"HBTVM_DEBUG": "1"})
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "ZeroDivisionError" in done.stderr


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    _log(tmp_path / "long.jsonl", 3000)
    process = subprocess.Popen(
        fake_cli.command("log", "best", "long.jsonl", "--json"),
        cwd=tmp_path,
        env=fake_cli.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"[\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 141


def test_a_full_disk_behind_standard_output(tmp_path: Path) -> None:
    _log(tmp_path / "log.jsonl", 1)
    with open("/dev/full", "w") as full:
        done = fake_cli.run("log", "stats", "log.jsonl", cwd=tmp_path, stdout=full)
    assert (done.returncode, done.stderr) == (1, "hbtvm: error: No space left on device\n")


def test_letters_that_the_terminal_lacks(tmp_path: Path) -> None:
    _log(tmp_path / "log.jsonl", 1)
    done = fake_cli.run("log", "best", "log.jsonl", cwd=tmp_path, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "10.0 ?s" in done.stdout


def test_interrupted_outside_of_tune(tmp_path: Path) -> None:
    code = (
        "import os, signal; from hbtvm.cli.commands import log; "
        "log.files.existing = lambda *_: os.kill(os.getpid(), signal.SIGINT); "
        "import sys; from hbtvm.cli.main import main; sys.exit(main(['log', 'stats', 'x']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=fake_cli.environment(),
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stderr) == (130, "hbtvm: interrupted\n")


def _log(path: Path, records: int) -> None:
    from hbtvm.logs.record import Record

    lines = [
        Record(
            workload={"rows": i + 1}, strategy="gemm", target={"kind": "llvm"}, config={"a": 1}, times=(1e-5,)
        ).to_line()
        for i in range(records)
    ]
    path.write_text("\n".join(lines) + "\n")


def test_another_kind_of_file_is_told_with_what_it_is_good_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.tar").write_bytes(bytes(257) + b"ustar" + bytes(1000))
    Path("m.txt").write_text("tree\n")
    Path("log.jsonl").write_text("{}\n")
    for given, sentence in (
        ("tune m.tar", "m.tar: this seems to be a package, expected a trained model; predict with it:"),
        (
            "compile log.jsonl",
            "log.jsonl: this seems to be a tuning log, expected a trained model; look",
        ),
        (
            "predict m.txt d.csv",
            "m.txt: this seems to be a trained model, expected a package; compile it",
        ),
        ("inspect log.jsonl", "log.jsonl: this seems to be a tuning log, expected a package or a trained"),
        ("log best m.txt", "m.txt: this is not a tuning log, or has another version"),
        ("log stats m.txt", "m.txt: this is not a tuning log, or has another version"),
    ):
        assert main(given.split()) == 2
        assert sentence in capsys.readouterr().err
