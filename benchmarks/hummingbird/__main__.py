"""Hummingbird's own tests, held against hbtvm: ``python -m benchmarks.hummingbird CHECKOUT``.

CHECKOUT is a clone of github.com/microsoft/hummingbird. Its test files run as they are, but what they
import as `hummingbird.ml` is a stand-in that compiles with hbtvm (see `standin`), whichever back end a test
names. The interpreter needs hbtvm, pytest, torch and psutil, and for the tests of ONNX models onnx,
onnxruntime, skl2onnx, onnxmltools and onnxconverter-common; give another one than this with ``--python``.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import common
from benchmarks.hummingbird.plugin import OUTCOMES

_ROOT = Path(__file__).parents[2]
_KINDS = ("passed", "failed", "not applicable")


def main() -> int:
    """Run the tests; returns the exit status: 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hummingbird", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("files", nargs="*", help="test files, such as test_sklearn_pipeline.py; all if none")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/hummingbird"))
    parser.add_argument("--seconds", type=float, default=900.0, help="given to each file")
    arguments = parser.parse_args()
    tests = arguments.checkout / "tests"
    files = [tests / name for name in arguments.files] or sorted(tests.glob("test_*.py"))
    if not files or not all(file.exists() for file in files):
        parser.error(f"there are no such tests in {tests}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    with open(arguments.output / "pytest.log", "w") as log:
        for file in files:
            start = time.perf_counter()
            found = _run(file.resolve(), arguments.python, arguments.seconds, log)
            outcomes[file.name] = found
            counts = collections.Counter(one["outcome"] for one in found)
            told = ", ".join(f"{counts[kind]} {kind}" for kind in _KINDS)
            print(f"{file.name}: {told} ({time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
            (arguments.output / "outcomes.json").write_text(json.dumps(outcomes, indent=1))
    text = report(outcomes)
    (arguments.output / "hummingbird.md").write_text(text)
    print(text)
    return int(any(one["outcome"] == "failed" for found in outcomes.values() for one in found))


def _run(file: Path, python: str, seconds: float, log: object) -> list[dict[str, str]]:
    """The outcomes of one file's tests."""
    with tempfile.TemporaryDirectory(prefix="hummingbird-") as folder:
        written = Path(folder, "outcomes.jsonl")
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        # Not the checkout's nor this project's settings of pytest.
        settings = Path(folder, "pytest.ini")
        settings.write_text("[pytest]\n")
        command = [python, "-m", "pytest", "-c", str(settings), "--rootdir", str(file.parent)]
        command += ["-p", "benchmarks.hummingbird.plugin", "-p", "no:cacheprovider", "-q", str(file)]
        told = ""
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                # Spark's workers run the same interpreter.
                env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": python, OUTCOMES: str(written)},
                stdout=log,  # type: ignore[arg-type]
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            )
            if done.returncode not in (0, 1, 5):
                told = f"pytest ended with status {done.returncode}"
        except subprocess.TimeoutExpired:
            told = f"gave up after {seconds:.0f} s"
        lines = written.read_text().splitlines() if written.exists() else []
    found: list[dict[str, str]] = [json.loads(line) for line in lines]
    if told:
        found.append({"test": file.name, "outcome": "failed", "told": told})
    return found


def report(outcomes: dict[str, list[dict[str, str]]]) -> str:
    """Numbers by file, then failures and what does not apply by reason."""
    rows, total = [], collections.Counter[str]()
    for name, found in outcomes.items():
        counts = collections.Counter(one["outcome"] for one in found)
        total += counts
        rows.append([name, *(str(counts[kind]) for kind in _KINDS)])
    rows.append(["together", *(str(total[kind]) for kind in _KINDS)])
    parts = ["# Hummingbird's tests against hbtvm\n", common.markdown(["file", *_KINDS], rows)]
    for kind in _KINDS[1:]:
        reasons: dict[str, list[str]] = {}
        for found in outcomes.values():
            for one in found:
                if one["outcome"] == kind:
                    reasons.setdefault(one["told"], []).append(one["test"])
        ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
        lines = [f"- {len(tests)} x {told}\n  ({', '.join(_short(tests))})" for told, tests in ordered]
        parts.append(f"\n## {kind.capitalize()}\n\n" + ("\n".join(lines) or "None."))
    return "\n".join(parts) + "\n"


def _short(tests: list[str], most: int = 4) -> list[str]:
    names = [f"{test.partition('::')[0]}::{test.rpartition('::')[2]}" for test in tests]
    return names if len(names) <= most else [*names[:most], f"{len(names) - most} more"]


if __name__ == "__main__":
    sys.exit(main())
