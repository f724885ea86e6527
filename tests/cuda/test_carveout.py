"""How much of a multiprocessor's memory is shared memory: the knob, its way to the driver, and older logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
from hbtvm import codec
from hbtvm.compiler import assemble as compiling
from hbtvm.compiler.building.cuda import source_and_launch
from hbtvm.compiler.candidates.tasks import describe
from hbtvm.compiler.selection.choose import choose
from hbtvm.errors import PackageError
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import KernelEntry, Package, from_bytes, to_bytes
from hbtvm.schedules.cuda import carveout
from hbtvm.schedules.cuda.space import Needs, fits
from hbtvm.schedules.space import Config
from hbtvm.strategies import make_forest, strategies_on, workload_of
from hbtvm.tuning.learning.tables import understood
from tests import emulated
from tests.cuda_kernels import GPU
from tests.emulated import CAPABILITY, CARVEOUT, SM90, Machine
from tests.ensembles import random_ensemble
from tests.fake_tuning import SPACE, run, task
from tests.models import data
from tests.runtime_models import trained

CUDA = strategies_on(GPU)
KIB = 1024

needs_gxx = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


def shape(rows: int = 100_000) -> Any:
    ensemble = random_ensemble(np.random.default_rng(3), trees=100, features=28)
    return workload_of(make_forest(ensemble, "float32", "float32"), rows)


@pytest.mark.parametrize(
    ("shared", "resident", "kib"),
    [
        (1, 1, 8),
        (7 * KIB, 1, 8),
        (7 * KIB + 1, 1, 16),
        (28_672, 4, 132),
        (28_672, 7, 228),
        (227 * KIB, 1, 228),
    ],
)
def test_blocks_need_the_next_size_that_holds_them(shared: int, resident: int, kib: int) -> None:
    assert carveout.needed(shared, resident) == kib * KIB


def test_no_choice_is_another_ones_twin() -> None:
    def chosen(shared: int, resident: int) -> list[str]:
        made = [str(one) for one in carveout.KNOB.choices]
        given = Needs(128, shared, 32)
        return [one for one in made if fits(given, GPU, {"resident": resident, "carveout": one})]

    assert chosen(0, 4) == ["driver"]
    assert chosen(28_672, 4) == ["driver", "needed", "most"]
    assert chosen(28_672, 7) == ["driver", "needed"]  # which is all that there is


@pytest.mark.parametrize("name", CUDA)
def test_a_launch_says_what_the_knob_does(name: str) -> None:
    workload, strategy = shape(), CUDA[name]
    default = strategy.default(workload, GPU)
    assert default["carveout"] == "driver"
    sources, found = set(), {}
    for how in carveout.KNOB.choices:
        config: Config = {**default, "carveout": how, "resident": 2}
        assert strategy.space(workload, GPU).contains(config)
        source, launch = source_and_launch(strategy.module(workload, config), GPU)
        sources.add(source)
        found[how] = launch.carveout
    assert len(sources) == 1  # the code is the same
    blocks = 2 * (strategy.schedule.needs(workload, config).shared + KIB)  # type: ignore[attr-defined]
    needed = found["needed"]
    assert found["driver"] is None and found["most"] == 228 * KIB
    assert needed in carveout.SIZES and blocks <= needed


@needs_gxx
@pytest.mark.parametrize(
    ("capability", "size", "percent"),
    [(90, 132, 57), (90, 100, 43), (90, 8, 3), (90, 228, 100), (86, 64, 64), (86, 132, 100), (90, 0, 0)],
)
def test_packages_keep_it_and_the_driver_is_told(
    machine: Machine, capability: int, size: int, percent: int
) -> None:
    """Of so many percent, the driver takes the next size from there on."""
    machine.set(CAPABILITY, capability)
    package, X = emulated.package("lgb_two"), data()[0][:100].astype(np.float32)
    want = Model(package).predict(X, "raw")
    before = machine.get(CARVEOUT)
    kernels = with_carveout(package, size)
    written = to_bytes(replace(package, kernels=kernels))
    again = from_bytes(written)
    assert [one.launch and one.launch.carveout for one in again.kernels] == [size * KIB] * len(kernels)
    assert again.recursion is None and machine.get(CARVEOUT) == before
    np.testing.assert_array_equal(Model(again).predict(X, "raw"), want)
    assert machine.get(CARVEOUT) == percent


def with_carveout(package: Package, size: int) -> tuple[KernelEntry, ...]:
    launches = [replace(one.launch, carveout=size * KIB) for one in package.kernels if one.launch]
    return tuple(replace(one, launch=own) for one, own in zip(package.kernels, launches, strict=True))


@needs_gxx
@pytest.mark.parametrize("size", [-1, True, 2**30, "132"])
def test_a_carveout_that_makes_no_sense_is_refused(machine: Machine, size: Any) -> None:
    package = emulated.package("lgb_two")
    first = package.kernels[0]
    assert first.launch is not None
    broken = replace(first, launch=replace(first.launch, carveout=size))
    with pytest.raises(PackageError, match="carveout is"):
        to_bytes(replace(package, kernels=(broken, *package.kernels[1:])))


def test_a_launch_without_a_wish_says_nothing_of_it() -> None:
    _, launch = source_and_launch(CUDA["bitvector"].module(shape(), config_of("bitvector")), GPU)
    assert "carveout" not in codec.write(launch)
    with pytest.raises(codec.CodecError, match="carve"):
        codec.read(type(launch), {**codec.write(launch), "carve": 1})


def config_of(name: str, **knobs: Any) -> Config:
    return {**CUDA[name].default(shape(), GPU), **knobs}


def record(config: Config, name: str = "bitvector", seconds: float = 1e-3) -> Record:
    return Record(workload=shape(), strategy=name, target=GPU, config=config, times=(seconds,))


def test_records_from_before_the_knob_stand_for_the_drivers_choice() -> None:
    old = config_of("bitvector", node_unroll=2)
    del old["carveout"]
    records = [record(old), record(config_of("bitvector", carveout="needed"), seconds=2e-3)]
    choice = choose(records, CUDA, shape(), GPU)
    assert (choice.origin, choice.config) == ("log", {**old, "carveout": "driver"})
    known = understood(records, describe)
    assert known is not None
    assert [one["carveout"] for one in known.configs] == ["driver", "needed"]
    newer = [record(config_of("bitvector", carveout="needed"))]
    assert choose(newer, CUDA, shape(), GPU).config["carveout"] == "needed"


def test_a_search_goes_on_from_a_log_from_before_a_knob(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    before = run(task(), trials=20, log=log)
    knob = replace(carveout.KNOB, choices=("driver", "most"))
    space = replace(SPACE, knobs=(*SPACE.knobs, knob))
    after = run(task(space=space), trials=30, log=log)
    assert (before.trials, after.resumed, after.trials) == (20, 20, 30)
    assert all("carveout" in one.config for one in after.history)
    best = after.groups["1000 rows"].best
    assert best is not None and set(best.config) == {knob.name for knob in space.knobs}


@needs_gxx
def test_a_logs_choice_is_compiled(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The emulated compiler is known in this process alone.
    monkeypatch.setattr(compiling, "results", lambda calls: [call() for _, call in calls])
    model, rows = trained("lgb_two")[1], 5000
    forest = make_forest(model.anchor, "float32", "float32")
    workload = workload_of(forest, rows)
    config = {**CUDA["tree_traversal"].default(workload, GPU), "carveout": "most", "resident": 2}
    log = Log(tmp_path / "log.jsonl")
    log.append(Record(workload=workload, strategy="tree_traversal", target=GPU, config=config, times=(1e-6,)))
    made = hbtvm.compile(model, target=SM90, batch_sizes=(rows,), log=str(log.path))
    assert made.package.kernels[0].config == config
    X = data()[0][:100].astype(np.float32)
    made.predict(X)
    assert machine.get(CARVEOUT) == 100
