"""Tuning logs that lie, and files of times: through the commands that read them, tune and compile among them.

Fields of real records are changed, taken away or exchanged, also so that only the text of a line shows it
(``NaN``, numbers of 400 digits, keys twice, deep nesting). A command has to end with status 0, or 2 where no
line is left, and nothing may stay half-written.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.mutants.changes import MARK, TEXTS, changed_bytes, changed_value, with_text

if TYPE_CHECKING:
    from hbtvm.logs import Record

SECONDS = 180.0
"""Longest that a mutant may take: some are built and timed by worker processes."""

_STATUS = (0, 2)


def prepare(folder: Path) -> None:
    """Write models, a log of candidates of theirs and of others, an archive of candidates, and its times."""
    from sklearn.cluster import KMeans
    from sklearn.linear_model import Ridge
    from sklearn.tree import DecisionTreeRegressor

    from hbtvm import trials
    from hbtvm.logs import Log, shipped
    from hbtvm.measuring import archive

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 4)), rng.normal(size=80)
    models = {
        "tree": DecisionTreeRegressor(max_depth=3, random_state=0).fit(X, y),
        "linear": Ridge().fit(X, y),
        "clusters": KMeans(3, n_init=1, random_state=0).fit(X),
    }
    log = Log(folder / "log.jsonl")
    for name, model in models.items():
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(model))
        for record in _records(model):
            log.append(record)
    for record in shipped()[::40]:
        log.append(record)
    exported = trials.export(
        models["tree"], folder / "trials.tar", batch_sizes=64, threads=1, trials=2, transfer=False
    )
    read = archive.read(folder / "trials.tar")
    date = "2026-01-02T03:04:05Z"
    head = {"format": "hbtvm-times", "version": 1, "trials": read.digest, "target": read.target, "date": date}
    lines = [
        {"candidate": one % exported.built, "date": date, "times": [1e-5, 2e-5], "measure_seconds": 0.1}
        for one in range(6)
    ]
    (folder / "times.jsonl").write_text("\n".join(map(json.dumps, [head, *lines])))


def _records(model: Any) -> list[Record]:
    """Candidates of a model that are drawn at random, some with errors, some of a final."""
    from hbtvm.compiler.candidates.tasks import operands_of
    from hbtvm.compiler.targets.target import resolve
    from hbtvm.frontends import from_object
    from hbtvm.logs import Record
    from hbtvm.logs.ranking import final_mark
    from hbtvm.strategies import strategies_on, workload_of

    made: list[Record] = []
    operand, target = operands_of(from_object(model), "float32")[0], resolve("cpu")
    for rows in (1, 64):
        workload = workload_of(operand, rows, 1)
        for name, strategy in strategies_on(target, operand.family).items():
            for config in strategy.space(workload, target).sample(np.random.default_rng(rows), 10):
                number = len(made)
                failed = number % 7 == 6
                made.append(
                    Record(
                        workload=workload,
                        strategy=name,
                        target=target,
                        config=config,
                        times=() if failed else (1e-6 * (1 + number), 2e-6 * (1 + number)),
                        error={"kind": "build", "message": "no"} if failed else None,
                        build_seconds=0.1,
                        tvm="0.27.0",
                        hbtvm="0.1.0",
                        session="a",
                        extra=final_mark(f"final {rows}", 1e-6) if number % 5 == 1 else {},
                    )
                )
    return made


def trials(folder: Path) -> Callable[[int, int], str]:
    """Return what makes and tries a mutant; see `benchmarks.mutants`."""
    importlib.import_module("hbtvm.api")  # so that limits of memory count from what it takes
    from hbtvm.cli.main import main

    own = (folder / "log.jsonl").read_bytes().splitlines()
    times = (folder / "times.jsonl").read_bytes().splitlines()

    def trial(number: int, seed: int) -> str:
        rng = random.Random(f"{seed} {number}")
        place = folder / f"logs-{os.getpid()}"
        place.mkdir()
        before = Path.cwd()
        os.chdir(place)
        try:
            (place / "log.jsonl").write_bytes(_changed(own, rng))
            (place / "times.jsonl").write_bytes(times[0] + b"\n" + _changed(times[1:], rng))
            name, command = _command(folder, rng)
            status = main(command)
            assert status in _STATUS, f"{name} ended with {status}"
            left = [one for one in os.listdir(place) if one.endswith(".tmp") or one.startswith(".")]
            assert not left, f"{name} left {left}"
            return name if status == 0 else "refused"
        finally:
            os.chdir(before)
            shutil.rmtree(place)

    return trial


def _command(folder: Path, rng: random.Random) -> tuple[str, list[str]]:
    """Draw a command by its weight, of those for which the folder has files."""
    log, built = ["--log", "log.jsonl"], ["--batch-size", "64", "--threads", "1"]
    commands = [
        (400, "stats", ["log", "stats", "log.jsonl", *rng.choice(([], ["--json"]))]),
        (400, "best", ["log", "best", "log.jsonl", *rng.choice(([], ["--json"], ["--rows", "64"]))]),
        (200, "merge", ["log", "merge", "log.jsonl", "log.jsonl", "-o", "all.jsonl"]),
        (200, "prune", ["log", "prune", "log.jsonl", "--keep", "2", "--others", "2", "--errors", "1"]),
        (50, "report", ["report", "log.jsonl", "-o", "log.html"]),
    ]
    archive, models = folder / "trials.tar", sorted(folder.glob("*.pkl"))
    if archive.exists():
        commands.append((300, "import", ["log", "import", str(archive), "times.jsonl", *log]))
    if models:
        model, out = str(rng.choice(models)), ["-o", "model.tar"]
        trials, seed = str(rng.choice((1, 26))), str(rng.randrange(100))
        commands += [
            (40, "compile", ["compile", model, *log, *built, *out]),
            (6, "export", ["tune", model, *log, *built, "--export", "new.tar", "--trials", "1"]),
            (4, "tune", ["tune", model, *log, *built, *out, "--trials", trials, "--seed", seed]),
        ]
    ((_, name, command),) = rng.choices(commands, [weight for weight, *_ in commands])
    return name, command


def _changed(lines: list[bytes], rng: random.Random) -> bytes:
    """Lines of which some are changed."""
    made = list(lines)
    for _ in range(rng.choice((1, 2, 5, len(lines)))):
        at = rng.randrange(len(made))
        match rng.randrange(8):
            case 0:
                made[at] = changed_bytes(lines[at % len(lines)], rng, lines)
            case 1:
                made.insert(at, made[at])
            case 2 | 3 | 4:
                fields = json.loads(lines[at % len(lines)])
                for _ in range(rng.choice((1, 1, 3))):
                    changed_value(fields, rng)
                made[at] = json.dumps(fields).encode()
            case _:
                made[at] = _with_text(json.loads(lines[at % len(lines)]), rng)
    return b"\n".join(made) + rng.choice((b"\n", b"", b"\n\n"))


def _with_text(fields: dict[str, Any], rng: random.Random) -> bytes:
    """A line with a text in place of a value that may lie deeper."""
    into: Any = fields
    key: Any = rng.choice([*fields, "final", "waited"])
    while (
        isinstance(into.get(key) if isinstance(into, dict) else into[key], dict | list) and rng.random() < 0.8
    ):
        inside = into[key]
        if not inside:
            break
        into, key = inside, rng.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
    into[key] = MARK
    return with_text(fields, rng.choice(TEXTS)).encode()
