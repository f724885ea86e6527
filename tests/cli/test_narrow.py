"""What people see on narrow terminals: no word is cut, no line is too long, no control character gets out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import hbtvm
from hbtvm.cli import show
from hbtvm.cli.arguments import batch_sizes
from hbtvm.cli.main import main, make_parser
from hbtvm.logs.record import Record
from tests import fake_cli, models
from tests.cli.test_main import PARSERS
from tests.cli.test_show import on_terminal

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
EVIL = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202egnp\r\nhbtvm: error: nothing"
"""Sets a terminal's title, colours and clears the screen, turns the direction of writing, forges a line."""


def rendered(cwd: Path, width: int, *arguments: object, term: str = "xterm", how: str | None = None) -> str:
    """What a command writes on a terminal, without the codes of colours and cursor."""
    command = fake_cli.command(*arguments, how=how)
    _, text = on_terminal(command, cwd, TERM=term, COLUMNS=str(width))
    return ESCAPES.sub("", text).replace("\r\n", "\n")


def assert_whole(text: str, width: int, whole: str) -> None:
    """No line but a hash's is longer than the terminal, and all words are words of the unbroken text."""
    for line in re.split(r"[\r\n]+", text):
        assert len(line) <= width or re.fullmatch(r"sha256 +[0-9a-f]{64}", line), line
    words = set(whole.split()) | {"\\"}
    for word in text.split():
        assert word in words or set(word) <= set("─━╸╺"), word


def record(**given: object) -> Record:
    config = {"axis": "trees", "column_lookup": "permute", "index_dtype": "int32", "leaf_lookup": "scalar"}
    known = {
        "workload": {"features": 5, "groups": 1, "trees": 500, "leaves": 31, "depth": 9, "rows": 100},
        "strategy": "perfect_tree_traversal",
        "target": {"kind": "llvm", "features": ["avx", "avx2", "bmi2", "fma", "popcnt", "sse4.2"]},
        "config": config,
        "times": (1.5e-5,),
    }
    return Record(**{**known, **given})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("narrow")
    (path / "log.jsonl").write_text(record().to_line() + "\n")
    (path / "m.txt").touch()
    hbtvm.compile(models.ZOO["sk_forest_real_nan"](), batch_sizes=[1, 100], threads=1).save(path / "m.tar")
    return path


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("command", sorted(PARSERS))
def test_help_fits(
    command: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for columns in (10_000, width):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main([*command.split(), "--help"]) == 0
        texts.append(capsys.readouterr().out)
    assert_whole(texts[1], width, texts[0])


@pytest.mark.parametrize(("width", "term"), [(60, "xterm"), (80, "dumb")])
@pytest.mark.parametrize(
    "given", ["inspect m.tar", "log best log.jsonl", "log stats log.jsonl", "tune nothing-here.json"]
)
def test_commands_fit(folder: Path, width: int, term: str, given: str) -> None:
    text = rendered(folder, width, *given.split(), term=term)
    done = fake_cli.run(*given.split(), cwd=folder)
    assert text.strip()
    assert_whole(text, width, done.stdout + done.stderr)
    assert not set("[]{}'") & set(text)  # nor are there Python's lists


@pytest.mark.parametrize(("width", "term"), [(50, "xterm"), (60, "dumb"), (80, "xterm")])
def test_tuning_fits(folder: Path, width: int, term: str) -> None:
    text = rendered(folder, width, "tune", "m.txt", "-o", "out.tar", term=term, how="fine")
    assert "10/10 trials" in " ".join(text.split())
    for line in re.split(r"[\r\n]+", text):
        assert len(line) <= width, line
    for whole in ("tuning m.txt", "1.00 µs", "package", "failed", "DATA.csv", "comparing", "packages"):
        assert whole in text or (term, whole) in {("dumb", "comparing"), ("dumb", "packages")}


def test_a_pipe_gets_whole_lines(folder: Path) -> None:
    done = fake_cli.run("log", "best", "log.jsonl", cwd=folder, env={"COLUMNS": "40"})
    head, line, *_ = done.stdout.splitlines()
    assert head.startswith("model") and head.endswith("schedule") and line.endswith("leaf_lookup=scalar")


def test_tables_become_blocks_where_they_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "columns", lambda stream: 30)
    show.print_table(
        ("name", "time of it", "what"), [("a", "10 s", "some words that are many")], ("time of it",)
    )
    assert capsys.readouterr().out == (
        "name  time  what\n        of\n        it\n────  ────  ──────────────────\n"
        "a     10 s  some words that\n            are many\n"
    )
    show.print_table(("name", "time"), [("a-name-that-is-very-very-long", "10 s"), ("b", "5 s")], ("time",))
    assert "name  a-name-that-is-very-very-long\ntime  10 s\n\nname  b\n" in capsys.readouterr().out


def test_nothing_in_a_log_reaches_the_terminal_as_it_is(tmp_path: Path) -> None:
    evil = json.dumps(EVIL)[1:-1]
    lines = [
        record(target={"kind": "llvm", "features": [EVIL]}, config={"tile": EVIL}),
        record(times=(), error={"kind": "crash", "message": EVIL}),
    ]
    name = "log\x1b[2J.jsonl"
    texts = [line.to_line() for line in lines]
    # Names that are none, whose lines readers skip.
    texts += [
        text.replace(word, evil)
        for text in texts
        for word in ("tile", "llvm", "crash", "perfect_tree_traversal")
    ]
    (tmp_path / name).write_text("".join(text + "\n" for text in texts))
    (tmp_path / "m\x1b[2J.txt").write_text("tree\nversion=v4\x1b[2J\n")
    given: list[tuple[str, ...]] = [("log", "best"), ("log", "stats"), ("log", "prune")]
    given += [("log", "best", "--json"), ("log", "stats", "--json")]
    for arguments in given:
        done = fake_cli.run(*arguments[:2], name, *arguments[2:], cwd=tmp_path)
        assert done.returncode == 0
        assert all(c.isprintable() or c == "\n" for c in done.stdout + done.stderr), arguments
        assert not re.search(r"^hbtvm: error", done.stderr, re.MULTILINE)
        if arguments[1:] == ("best", "--json"):
            assert EVIL in str(json.loads(done.stdout)) or repr(EVIL)[1:-1] in str(json.loads(done.stdout))
    for arguments in [
        ("inspect", "m\x1b[2J.txt"),
        ("inspect", "\x1b[2J.txt"),
        ("tune", "m", "--\x1b[2J"),
    ]:
        done = fake_cli.run(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert "\x1b" not in done.stderr and "\\x1b[2J" in done.stderr
    assert fake_cli.run("report", name, "-o", "r.html", cwd=tmp_path).returncode == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert all(c.isprintable() or c == "\n" for c in page)


def test_a_package_of_strangers_is_shown_with_care(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    from hbtvm.runtime.package.file import read, write

    package = read(folder / "m.tar")
    kernels = tuple(replace(kernel, strategy=EVIL, config={EVIL: EVIL}) for kernel in package.kernels)
    evil = replace(package, library=EVIL, kernels=kernels, tuning={EVIL: [EVIL]}, hbtvm_version=EVIL)
    write(evil, folder / "evil.tar")
    assert main(["inspect", str(folder / "evil.tar")]) == 0
    assert main(["inspect", "--json", str(folder / "evil.tar")]) == 0
    out, err = capsys.readouterr()
    assert not err and all(c.isprintable() or c == "\n" for c in out)
    assert all(c.isprintable() or c == "\n" for c in hbtvm.load(folder / "evil.tar").summary())


def test_batch_sizes_add_up() -> None:
    def sizes(given: str) -> object:
        return make_parser().parse_args(["compile", "m", *given.split()]).batch_size

    assert sizes("") is None
    assert sizes("--batch-size 1 --batch-size 100") == (1, 100)
    assert sizes("--batch-size 5,1 --batch-size 1,7") == (1, 5, 7)
    assert sizes("--batch-size 1,100") == batch_sizes("100,1") == (1, 100)
    # What is the default's value, given in so many words, counts too.
    assert sizes("--batch-size 1,100,10000 --batch-size 5") == (1, 5, 100, 10_000)
