"""Run a whole bundle behind the emulated driver: ``python -m tests.gpucheck.whole FOLDER``.

The bundle has the steps of `benchmarks.gpu.bundle`, with smaller models and calls, and a fault in the third.
Runs it twice, the first time with a deadline that cuts it off, and checks the results. Takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu import bundle as building
from benchmarks.peers import data, train
from hbtvm.compiler.targets.target import resolve
from hbtvm.gpucheck import bundle
from hbtvm.gpucheck.run import RESULTS
from hbtvm.runtime.package.file import from_bytes
from tests import emulated
from tests.gpucheck.test_gpucheck import aborting, ran
from tests.measuring.test_measure_gpu import InThisProcess

SIZES = building.Sizes(
    trees=5,
    checked=(1, 63, 300),
    timed=(1, 100),
    explained=(1, 20),
    trials={"lightgbm": 4, "xgboost": 4},
    hidden=16,
    structures=(1, 2, 3),
)
FAULTY = 2  # the third step


def build(folder: Path) -> list[str]:
    """Write the bundle to a folder; return the names of its steps.

    The packages' machine code is emulated, and lasts as long as this process.
    """
    with emulated.machine(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "TREES", 8)
        patch.setitem(data.SETS, "higgs", replace(data.SETS["higgs"], train=2_000))
        patch.setattr("hbtvm.compiler.candidates.exporting.Pool", InThisProcess)
        target, cache = resolve(building.H100), folder / "models"
        made = building.contents(target, SIZES)
        for library in SIZES.trials:
            building.add_trials(made, building.trials_of(library, target, cache, folder, SIZES), 60.0)
        building.measurements(target, made, cache, SIZES)
        building.recursive_models(target, made, SIZES)
        step = made.steps[FAULTY]
        package = aborting(from_bytes(made.files[step.fields["package"]]))
        name = made.put("packages/faulty.tar", package)
    made.steps[FAULTY] = replace(step, fields={**step.fields, "package": name})
    # The emulator is slow.
    made.steps = [replace(each, seconds=600.0) if each.kind != "trials" else each for each in made.steps]
    bundle.write(folder / "bundle.tar", target, made.steps, made.files)
    return [step.name for step in made.steps]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpucheck.whole", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the bundle and the results are written")
    parser.add_argument("--deadline", type=int, default=1800, help="seconds for the run (default: 1800)")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    steps = build(given.folder)
    print(f"{len(steps)} steps, built in {time.monotonic() - start:.0f} s", flush=True)
    out = given.folder / "out"

    def results() -> list[dict[str, str]]:
        return [json.loads(line) for line in (out / RESULTS).read_text().splitlines()[1:]]

    options = ("--out", str(out), "--jobs", "1")
    assert ran(given.folder, *options, "--deadline", "30").returncode in (1, 3)
    before = results()
    assert 0 < len(before) < len(steps)
    done = ran(given.folder, *options, "--deadline", str(given.deadline))
    print(done.stdout, done.stderr, sep="\n")
    found = results()
    assert done.returncode == 1 and found[: len(before)] == before
    assert [line["step"] for line in found] == steps, "a step has no result, or another order"
    failed = {line["step"]: line["said"] for line in found if line["status"] == "failed"}
    assert list(failed) == [steps[FAULTY]] and "signal 6" in failed[steps[FAULTY]], failed
    print(
        f"{len(before)} steps before the deadline, {len(steps) - len(before)} after; one failed, as it should"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
