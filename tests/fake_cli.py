"""For tests of the command line: a fake `hbtvm.api` whose searches take no time, run in processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from hbtvm.errors import BuildError
from hbtvm.logs.store import LogError
from hbtvm.tuning.progress import Trial
from hbtvm.tuning.result import Entry, GroupResult, Result, WallClock
from tests import fake_tuning

ROOT = Path(__file__).resolve().parents[1]

CALLS: list[tuple[str, Any, dict[str, Any]]] = []

_FAKE = (
    "import sys; sys.path[:0] = [{tests!r}, {root!r}]; import fake_cli; fake_cli.install({how!r}); "
    "from hbtvm.cli.main import main; sys.exit(main())"
)


class Model:
    """A model whose package has `size` bytes."""

    def __init__(self, size: int = 1000, waits: bool = False) -> None:
        self.size, self.waits = size, waits
        self.package = SimpleNamespace(target={"arch": "of no machine"})

    def save(self, path: Path) -> None:
        if self.waits:
            wait("saving")
        temporary = path.with_name("being-written")
        try:
            temporary.write_bytes(b"x" * self.size)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


class Search:
    def __init__(self, result: Result) -> None:
        self.result = result
        self.model = Model(100_000)
        self.copies: dict[int, Any] = {}
        self.sample = ""
        self.calls: tuple[Any, ...] = ()
        self.untuned = None


def wait(word: str) -> None:
    """Say a word, and do nothing until a signal comes."""
    print(word, file=sys.stderr, flush=True)
    time.sleep(600)


def api(how: str = "fine") -> ModuleType:
    """Return a fake `hbtvm.api`, whose search ends as `how` says."""
    module = ModuleType("hbtvm.api")

    def search(model: Any, *, progress: Any = None, log: Path | None = None, **options: Any) -> Search:
        CALLS.append(("search", model, {**options, "log": log}))
        match how:
            case "fails":
                raise BuildError("no candidate worked, g++ is missing")
            case "log":
                raise LogError("cannot write tuning log x.jsonl: No space left on device")
            case "bug":
                raise ZeroDivisionError("division\nby zero")
            case "memory":
                raise MemoryError
            case "early":
                raise KeyboardInterrupt
        for i in range(1, 11):
            progress(trial(i, failures={"build": 1} if i > 5 else {}))
        if how in ("waits", "waits twice"):
            try:
                wait("waiting")
            except KeyboardInterrupt:
                found = Search(result(stopped="interrupted"))
                found.model.waits = how == "waits twice"
                return found
        return Search(_outcome(how))

    def compile(model: Any, **options: Any) -> Model:
        CALLS.append(("compile", model, options))
        return Model()

    module.search = search  # type: ignore[attr-defined]
    module.compile = compile  # type: ignore[attr-defined]
    return module


def _outcome(how: str) -> Result:
    if how == "nothing":
        return result(stopped="interrupted", best=False)
    if how == "full":
        return result(stopped="log", log_error=LogError("cannot write tuning log x.jsonl: No space left"))
    return result()


def install(how: str) -> None:
    """Put the fake in `hbtvm.api`'s place, for the life of the process."""
    sys.modules["hbtvm.api"] = api(how)


def trial(number: int, *, total: int = 10, elapsed: float | None = None, **more: Any) -> Trial:
    """Return one event of a search that takes a second for each trial, and improves with each."""
    given: dict[str, Any] = {
        "task": "1 row, gemm",
        "group": "1 row",
        "strategy": "gemm",
        "config": {"tile": number},
        "time": 1e-5 / number,
        "failure": None,
        "trial": number,
        "total": total,
        "best": {"1 row": 1e-5 / number},
        "failures": {},
        "elapsed": float(number) if elapsed is None else elapsed,
        "remaining": None,
    }
    return Trial(**{**given, **more})


def result(stopped: str = "trials", best: bool = True, **more: Any) -> Result:
    """Return the result of a search of two batch sizes, the second with a kernel if `best`."""
    task = fake_tuning.task("gemm", group="100 rows", rows=100)
    entry = Entry(task, {"tile": 4}, 2.5e-5, (2.5e-5,), final=True)
    default = Entry(task, {"tile": 1}, 3e-5, (3e-5,), final=True)
    groups = {
        "1 row": GroupResult(None, (), 4, Counter(build=4), {"build": "g++ is\nmissing"}, 1),
        "100 rows": GroupResult(
            entry if best else None,
            (),
            96,
            Counter(timeout=1),
            {"timeout": "took 10 s"},
            100,
            default if best else None,
        ),
    }
    given: dict[str, Any] = {
        "groups": groups,
        "history": [],
        "trials": 100,
        "resumed": 30,
        "failures": {},
        "seconds": WallClock(1.0, 2.0, 30.0, 20.0, 60.0),
        "stopped": stopped,
    }
    return Result(**{**given, **more})


def command(*arguments: object, how: str | None = None) -> list[str]:
    """Return a command line that runs hbtvm in a process; with `how`, on the fake."""
    code = ["-m", "hbtvm"]
    if how is not None:
        code = ["-c", _FAKE.format(tests=str(ROOT / "tests"), root=str(ROOT), how=how)]
    return [sys.executable, *code, *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of such a process, in which it finds hbtvm."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("HBTVM_DEBUG", "TERM", "COLUMNS")
    }
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **more}


def run(
    *arguments: object, how: str | None = None, cwd: Path, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run hbtvm in a process and return when it has ended."""
    env = environment(**more.pop("env", {}))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 100, "text": True}
    return subprocess.run(command(*arguments, how=how), cwd=cwd, env=env, **{**streams, **more})
