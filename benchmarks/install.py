"""What it takes to predict on a machine that only predicts: ``python -m benchmarks.install``.

Installs hbtvm without extras from the checkout in a fresh environment (which takes a package index), sums the
size by distribution, and times `import hbtvm; hbtvm.load(...)` and the first prediction in fresh processes.
The installer itself (pip, setuptools) is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import locked, markdown

ROOT = Path(__file__).resolve().parents[1]
SIZE_GOAL, LOAD_GOAL = 60e6, 0.2
"""Bytes of the installation, seconds to import and load."""

INSTALLERS = ("pip", "setuptools", "wheel")

_SIZES = """
import importlib.metadata, json
found = {}
for one in importlib.metadata.distributions():
    files = [one.locate_file(file) for file in one.files or ()]
    sizes = [(file.stat().st_size, "__pycache__" in file.parts) for file in files if file.exists()]
    found[one.name] = [sum(size for size, cached in sizes if cached == wanted) for wanted in (False, True)]
print(json.dumps(found))
"""

_LOAD = """
import sys, time
start = time.perf_counter()
import hbtvm
model = hbtvm.load(sys.argv[1])
loaded = time.perf_counter()
import numpy
rows = numpy.load(sys.argv[2])
before = time.perf_counter()
model.predict(rows[:1])
first = time.perf_counter()
model.predict(rows[:1])
print(loaded - start, first - before, time.perf_counter() - first, "tvm_ffi" in sys.modules)
"""

_NUMPY = """
import time
start = time.perf_counter()
import numpy
print(time.perf_counter() - start)
"""


def main() -> int:
    """Install, measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.install", description=__doc__)
    parser.add_argument(
        "--package", type=Path, help="the package to load; else a LightGBM model of 500 trees is compiled"
    )
    parser.add_argument("--rows", type=Path, help="a .npy file of rows for the package")
    parser.add_argument("--cache", type=Path, default=Path(".cache/peers"), help="folder of trained models")
    parser.add_argument("--runs", type=int, default=10, help="fresh processes to take the median of")
    parser.add_argument(
        "--lock", type=Path, metavar="FILE", help="lock this file while timing, as flock(1) does"
    )
    arguments = parser.parse_args()
    if (arguments.package is None) != (arguments.rows is None):
        parser.error("--package and --rows go together")
    with tempfile.TemporaryDirectory(prefix="install-") as name:
        folder = Path(name)
        package, rows = arguments.package, arguments.rows
        if package is None:
            package, rows = compiled(arguments.cache, folder)
        print("Installing ...", file=sys.stderr, flush=True)
        python = installed(folder)
        sizes = json.loads(output([python, "-I", "-c", _SIZES]))
        with locked(arguments.lock):
            times = timed(python, package.absolute(), rows.absolute(), arguments.runs)
    print(size_table(sizes))
    print()
    print(time_table(times, arguments.runs))
    return 0


def compiled(cache: Path, folder: Path) -> tuple[Path, Path]:
    """Compile a model of `benchmarks.peers` without a search; returns the package, and rows for it."""
    import hbtvm
    from benchmarks.peers.train import trained

    about = trained("lightgbm", "higgs", cache)
    package = folder / "model.tar"
    hbtvm.compile(about["path"]).save(package)
    return package, Path(about["rows"])


def installed(folder: Path) -> Path:
    """Install the checkout without ignored files in a fresh environment; returns its interpreter."""
    source = folder / "source"
    listed = output(["git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"])
    # A copy: building leaves files behind, and would take up those of an earlier build.
    for file in filter(None, listed.split("\0")):
        if (ROOT / file).is_symlink() or (ROOT / file).is_file():
            (source / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, source / file, follow_symlinks=False)
    output([sys.executable, "-m", "venv", str(folder / "environment")])
    python = folder / "environment" / "bin" / "python"
    output([python, "-m", "pip", "install", "--quiet", str(source)])
    return python


def timed(python: Path, package: Path, rows: Path, runs: int) -> dict[str, float]:
    """Medians of seconds in fresh processes, and whether ``tvm_ffi`` was imported."""
    found: dict[str, list[float]] = {"numpy": [], "load": [], "first": [], "second": [], "tvm_ffi": []}
    for run in range(runs + 1):
        alone = float(output([python, "-I", "-c", _NUMPY]))
        *seconds, ffi = output([python, "-I", "-c", _LOAD, str(package), str(rows)]).split()
        if run:  # the first one finds nothing in the page cache
            found["numpy"].append(alone)
            for name, value in zip(("load", "first", "second"), seconds, strict=True):
                found[name].append(float(value))
            found["tvm_ffi"].append(float(ffi == "True"))
    return {name: statistics.median(values) for name, values in found.items()}


def size_table(sizes: dict[str, list[int]]) -> str:
    """Megabytes by distribution, the installers left out."""
    kept = {name: parts for name, parts in sizes.items() if name not in INSTALLERS}
    total = np.sum(list(kept.values()), axis=0)
    lines = [
        [name, *(f"{part / 1e6:.1f}" for part in (*parts, sum(parts)))]
        for name, parts in sorted(kept.items(), key=lambda item: -sum(item[1]))
    ]
    reached = "reached" if total.sum() < SIZE_GOAL else "missed"
    goal = f"{total.sum() / 1e6:.1f} (goal: under {SIZE_GOAL / 1e6:.0f}, {reached})"
    lines.append(["all", f"{total[0] / 1e6:.1f}", f"{total[1] / 1e6:.1f}", goal])
    return markdown(["distribution", "files, MB", "byte code, MB", "together, MB"], lines)


def time_table(times: dict[str, float], runs: int) -> str:
    """Milliseconds of the steps to a first prediction."""
    reached = "reached" if times["load"] < LOAD_GOAL else "missed"
    more = ", tvm_ffi among it" if times["tvm_ffi"] else ""
    lines = [
        ["import numpy, alone", f"{times['numpy'] * 1e3:.0f}", "-"],
        [
            f"import hbtvm and load a package{more}",
            f"{times['load'] * 1e3:.0f}",
            f"under {LOAD_GOAL * 1e3:.0f}: {reached}",
        ],
        ["first prediction of a row", f"{times['first'] * 1e3:.3f}", "-"],
        ["second prediction of a row", f"{times['second'] * 1e3:.3f}", "-"],
    ]
    return markdown([f"median of {runs} fresh processes", "ms", "goal"], lines)


def output(command: list[Any]) -> str:
    """Standard output of a command.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
